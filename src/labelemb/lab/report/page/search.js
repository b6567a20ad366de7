// The search box and the bars of the chosen label's nearest labels.

const mostMatches = 12;

/** Names that hold the text, those that begin with it first. */
function findLabels(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const begins = [];
  const holds = [];
  state.space.folded.forEach((name, index) => {
    const at = name.indexOf(wanted);
    if (at === 0) begins.push(index);
    else if (at > 0) holds.push(index);
  });
  begins.sort((a, b) => state.space.names[a].length - state.space.names[b].length || a - b);
  return [...begins, ...holds];
}

function startSearch() {
  if (!data.spaces.length) return;
  const input = byId("search");
  const list = byId("matches");
  let found = [];
  let active = 0;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const mark = () => {
    [...list.querySelectorAll("[role=option]")].forEach((item, index) => {
      item.setAttribute("aria-selected", String(index === active));
      if (index === active) {
        input.setAttribute("aria-activedescendant", item.id);
        item.scrollIntoView({ block: "nearest" });
      }
    });
  };
  const take = (index) => {
    input.value = state.space.names[index];
    close();
    chooseLabel(index);
  };
  const open = () => {
    const all = findLabels(input.value);
    found = all.slice(0, mostMatches);
    active = 0;
    const items = found.map((index, number) =>
      el("li", { role: "option", id: `match-${number}`, onpointerdown: (event) => { event.preventDefault(); take(index); } }, state.space.names[index]),
    );
    if (input.value.trim() && !found.length) items.push(el("li", { class: "none" }, "No label name contains this."));
    if (all.length > found.length) items.push(el("li", { class: "none" }, `and ${(all.length - found.length).toLocaleString("en")} more`));
    list.replaceChildren(...items);
    list.hidden = !items.length;
    input.setAttribute("aria-expanded", String(items.length > 0));
    mark();
  };
  input.addEventListener("input", open);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return close();
    if (event.key === "Enter" && found.length && !list.hidden) return take(found[active]);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length && !list.hidden) {
      active = (active + step + found.length) % found.length;
      mark();
      event.preventDefault();
    }
  });
  on("label", showNearest);
}

function showNearest() {
  const { names, own, unlearned, confusion } = state.space;
  const label = state.label;
  const near = neighborsOf(label).slice(0, 20);
  const box = byId("nearest");
  const largest = near[0]?.[1] || 1;
  const rows = near.map(([index, value]) => {
    const taken = confusion ? `\n${names[label]} predicted as ${names[index]}: ${confused(label, index)} times` : "";
    return el(
      "li",
      {},
      el(
        "button",
        {
          type: "button",
          onclick: () => chooseLabel(index),
          onpointermove: (event) => showTip(`${names[index]}: ${short(value)}${taken}`, event),
          onpointerleave: hideTip,
        },
        el("span", { class: "name" }, ...breakable(names[index])),
        el("span", { class: "track" }, el("span", { class: "fill", style: `width:${(100 * value) / largest}%` })),
        el("span", { class: "value" }, short(value)),
      ),
    );
  });
  const words = [`Its probability for itself is ${short(own[label])}.`];
  if (unlearned.has(label)) words.push("It was never observed right in training, so its neighbours mean nothing.");
  if (!near.length) words.push("There are no similar labels.");
  if (confusion && confusion.examples[label]) {
    const examples = confusion.examples[label];
    const right = confused(label, label);
    words.push(`${right.toLocaleString("en")} of ${plural(examples, "test example")} right (${plural(confusion.runs, "run")}).`);
  }
  box.replaceChildren(
    el("h4", {}, "Nearest to ", ...breakable(names[label])),
    ...pictures(names[label]),
    el("p", { class: "quiet" }, words.join(" ")),
    el("ol", { class: "bars", "aria-label": `Labels nearest to ${names[label]}` }, ...rows),
    el("p", {}, el("button", { type: "button", class: "small", id: "pick", onclick: () => pick(label) }, "Add to the heatmap")),
  );
}
