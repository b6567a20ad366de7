// Pairs of labels that are nearly the same, or that are often confused.

let pairOrder = "likeness";

/** Both ways together; null where confusions are not known. */
function confusedBothWays(a, b) {
  return state.space.confusion ? confused(a, b) + confused(b, a) : null;
}

/** sqrt(p(a to b) p(b to a) / (p(a to a) p(b to b))): 1 where each gives the other what it keeps itself. */
function likeness(a, b) {
  const { own } = state.space;
  return Math.sqrt((similarity(a, b) * similarity(b, a)) / (own[a] * own[b] || 1));
}

function mostConfused() {
  const { confusion, names } = state.space;
  const totals = new Map();
  for (const [cell, count] of confusion.counts) {
    const [target, predicted] = [Math.floor(cell / names.length), cell % names.length];
    const key = Math.min(target, predicted) * names.length + Math.max(target, predicted);
    totals.set(key, (totals.get(key) ?? 0) + count);
  }
  const best = [...totals].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 30);
  return best.map(([key]) => [Math.floor(key / names.length), key % names.length]);
}

/** A sentence where no pair stands out; empty otherwise. */
function littleLearned() {
  const range = state.space.alike;
  return range ? `The largest likenesses are all between ${fixed(range[0], 2)} and ${fixed(range[1], 2)}: no pair stands out, so they say nothing about duplicates or mistakes. Train longer. ` : "";
}

function drawPairs() {
  const { names, pairs, confusion } = state.space;
  const shown = pairOrder === "likeness" || !confusion ? pairs : mostConfused();
  const link = (label) => el("button", { type: "button", class: "link", onclick: () => { chooseLabel(label); byId("labels").scrollIntoView(); } }, ...breakable(names[label]));
  const head = ["label", "label", "likeness", ...(confusion ? ["confused", "first as second", "second as first"] : [])];
  const rows = shown.map(([a, b, value]) => {
    const cells = [a, b].map((label) => titled("label", { class: "text" }, link(label), ...pictures(names[label])));
    cells.push(titled("likeness", {}, fixed(value ?? likeness(a, b), 2)));
    if (confusion) cells.push(...[confusedBothWays(a, b), confused(a, b), confused(b, a)].map((count, index) => titled(head[index + 3], {}, String(count))));
    return el("tr", {}, ...cells);
  });
  byId("pair-table").replaceChildren(
    el("thead", {}, el("tr", {}, ...head.map((title, index) => el("th", { scope: "col", class: index < 2 ? "text" : null }, title)))),
    el("tbody", {}, ...rows),
  );
  const runs = confusion
    ? ` Counts are wrong test predictions, summed over ${plural(confusion.runs, "run")}.`
    : data.score.title === "error" ? " Confusions are saved only for up to 500 labels." : "";
  const little = littleLearned();
  byId("pairs-title").textContent = little ? "Pairs of labels: too little was learned to tell them apart" : "Similar labels: duplicates or mistakes?";
  byId("pairs-about").textContent = `${little}A likeness of 1 means that each label gives the other as much probability as itself.${runs}${data.pictures ? " The pictures are the first test images of a label." : ""}`;
}

function startPairs() {
  if (!data.spaces.length) return;
  for (const order of ["likeness", "confusion"]) {
    byId(`by-${order}`).addEventListener("click", () => {
      pairOrder = order;
      for (const other of ["likeness", "confusion"]) byId(`by-${other}`).setAttribute("aria-pressed", String(other === order));
      drawPairs();
    });
  }
  on("space", () => {
    byId("by-likeness").parentElement.hidden = !state.space.confusion; // one order needs no choice
    drawPairs();
  });
}
