// The list of suspicious examples: search, filter, marks by pointer and keyboard.

const atOnce = 50;
const ranked = examples.slice(0, data.listed);
const view = { found: ranked, shown: atOnce, current: 0 };

for (const example of ranked) example.folded = `${example.input}\n${nameOf(example.given)}\n${nameOf(example.suggested)}`.toLowerCase();

function filtered() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const label = byId("label-filter").value.trim().toLowerCase();
  const which = byId("which").value;
  const isLabel = names.some((name) => name.toLowerCase() === label);
  const fits = (name) => (isLabel ? name === label : name.includes(label));
  return ranked.filter(
    (example) =>
      words.every((word) => example.folded.includes(word)) &&
      (!label || [example.given, example.suggested].some((place) => fits(nameOf(place).toLowerCase()))) &&
      (which === "all" || (which === "flagged" && example.flagged) || (which === "open" && !marks.has(example.index)) || (which === "marked" && marks.has(example.index))),
  );
}

function refresh() {
  view.found = filtered();
  view.shown = atOnce;
  view.current = 0;
  draw();
}

function item(example, place) {
  const entry = marks.get(example.index);
  const buttons = Object.entries(markWords).map(([key, word]) =>
    el("button", { type: "button", class: "small", title: `key ${key}`, "aria-pressed": String(entry?.mark === word), tabindex: "-1", onclick: (event) => { event.stopPropagation(); choose(place); mark(example, word); } }, capital(word)),
  );
  if (entry?.mark === "wrong") {
    buttons.push(el("input", {
      class: "new-label", list: "all-labels", value: entry.label, "aria-label": "New label; empty leaves the example out", placeholder: "leave out", spellcheck: "false",
      onclick: (event) => event.stopPropagation(),
      onchange: (event) => relabel(example, event.target.value),
      onkeydown: (event) => {
        event.stopPropagation();
        if (event.key === "Enter" || event.key === "Escape") byId("list").focus();
      },
    }));
  }
  const loss = example.loss === null ? "" : `, loss ${example.loss.toFixed(2)}`;
  return el(
    "li",
    { class: `example${place === view.current ? " current" : ""}`, id: `example-${place}`, role: "option", "aria-selected": String(place === view.current), "data-mark": entry?.mark ?? "", "data-index": String(example.index), onclick: () => choose(place) },
    ...picture(example),
    el(
      "div",
      { class: "what" },
      el("div", { class: "input" }, example.input),
      el("div", { class: "names" }, "given ", el("span", { class: "given" }, nameOf(example.given)), " · suggested ", el("span", { class: "suggested" }, nameOf(example.suggested))),
      el("div", { class: "numbers" }, `${probability(example.pGiven)} against ${probability(example.pSuggested)}${loss} · row ${example.index}, ${example.split}${example.flagged ? "" : " · not flagged"}`),
    ),
    el("div", { class: "marks" }, ...buttons),
  );
}

function draw() {
  const shown = view.found.slice(0, view.shown);
  byId("list").replaceChildren(...shown.map(item));
  const more = byId("more");
  more.hidden = view.found.length <= view.shown;
  more.textContent = `Show ${Math.min(atOnce, view.found.length - view.shown)} more`;
  const rest = data.judged - data.listed;
  byId("found").textContent = `${plural(view.found.length, "example")}${view.found.length < ranked.length ? ` of ${ranked.length.toLocaleString("en")}` : ""}${rest ? `; the ${rest.toLocaleString("en")} least suspicious are in audit.csv only` : ""}`;
  pointAtCurrent();
}

function pointAtCurrent() {
  const list = byId("list");
  if (view.found.length) list.setAttribute("aria-activedescendant", `example-${view.current}`);
  else list.removeAttribute("aria-activedescendant");
}

/** Draw one example anew, where it is shown. */
function redraw(place) {
  const node = byId(`example-${place}`);
  if (node) node.replaceWith(item(view.found[place], place));
}

function choose(place) {
  const before = view.current;
  view.current = place;
  redraw(before);
  redraw(place);
  pointAtCurrent();
}

function move(step) {
  const place = Math.max(0, Math.min(view.found.length - 1, view.current + step));
  if (place >= view.shown) {
    view.shown += atOnce;
    draw();
  }
  choose(place);
  byId(`example-${place}`)?.scrollIntoView({ block: "nearest" });
}

function answerKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !view.found.length) return;
  const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
  const example = view.found[view.current];
  if (event.key in steps) move(steps[event.key]);
  else if (event.key in markWords) {
    const had = marks.get(example.index)?.mark;
    mark(example, markWords[event.key]);
    if (had === undefined) move(1);
  } else if (event.key === "e") {
    if (marks.get(example.index)?.mark !== "wrong") mark(example, "wrong");
    byId(`example-${view.current}`).querySelector(".new-label").select();
  } else return;
  event.preventDefault();
}

function showMarks() {
  const counts = Object.values(markWords).map((word) => [word, [...marks.values()].filter((entry) => entry.mark === word).length]);
  byId("marked").textContent = marks.size ? counts.filter(([, count]) => count).map(([word, count]) => `${count} ${word}`).join(", ") : "nothing marked yet";
  byId("download").disabled = !marks.size;
  view.found.slice(0, view.shown).forEach((example, place) => {
    const node = byId(`example-${place}`);
    const entry = marks.get(example.index);
    const label = node?.querySelector(".new-label")?.value;
    if (node && (node.dataset.mark !== (entry?.mark ?? "") || (entry?.mark === "wrong" && label !== entry.label))) redraw(place);
  });
}

function startExamples() {
  byId("all-labels").replaceChildren(...names.slice(0, 2000).map((name) => el("option", { value: name })));
  for (const id of ["find", "label-filter", "which"]) byId(id).addEventListener("input", refresh);
  byId("more").addEventListener("click", () => { view.shown += atOnce; draw(); });
  byId("list").addEventListener("keydown", answerKey);
  byId("download").addEventListener("click", download);
  on("marks", showMarks);
  draw();
  showMarks();
}
