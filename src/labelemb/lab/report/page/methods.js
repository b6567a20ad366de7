// The methods of the comparison: their colours and dashes, and which of them the charts show.

const hidden = new Set();
const dashes = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 4"];
const methods = data.methods.map((method) => method.name);
for (const run of data.unfinished) if (!methods.includes(run.method)) methods.push(run.method);
const others = methods.filter((name) => name !== "plain");

const colorOf = (method) => (method === "plain" ? "var(--plain)" : `var(--m${others.indexOf(method) % 6})`);
/** Beyond six methods colours repeat; the dashes tell them apart. */
const dashOf = (method) => (method === "plain" ? "" : dashes[Math.floor(others.indexOf(method) / 6) % dashes.length]);
const shownMethods = () => data.methods.filter((method) => !hidden.has(method.name));

function swatch(method) {
  return el("span", { class: "swatch", style: `background:${colorOf(method)}`, "aria-hidden": "true" });
}

function startMethods() {
  const bar = byId("methods");
  bar.hidden = methods.length < 2;
  for (const method of methods) {
    const button = el("button", { type: "button", "aria-pressed": "true" }, swatch(method), el("span", {}, ...breakable(method)));
    button.addEventListener("click", () => {
      if (!hidden.delete(method)) hidden.add(method);
      button.setAttribute("aria-pressed", String(!hidden.has(method)));
      tell("methods");
    });
    bar.append(button);
  }
}
