// Pairs of labels that overlap, labels with problems, and duplicates.

function exampleLine(index) {
  const example = byIndex.get(index);
  return example ? el("li", {}, ...picture(example), ` ${example.input.length > 200 ? `${example.input.slice(0, 200)}…` : example.input}`) : el("li", {}, `row ${index}`);
}

/** A list that shows some of its items, and more on demand. */
function growing(box, more, items, make, atFirst = 10) {
  let shown = atFirst;
  const draw = () => {
    box.replaceChildren(...items.slice(0, shown).map(make));
    more.hidden = items.length <= shown;
    more.textContent = `Show ${Math.min(20, items.length - shown)} more of ${items.length}`;
  };
  more.addEventListener("click", () => { shown += 20; draw(); });
  draw();
}

function direction(from, to, count, rows) {
  return el("div", {}, el("b", {}, `${plural(count, "example")} of ${from} predicted as ${to}`), el("ul", {}, ...rows.map(exampleLine)));
}

function pairCard(pair) {
  const likeness = pair.likeness === null ? "" : ` Their similarity in the label space is ${short(pair.likeness)} and, in the other direction, ${short(pair.other_likeness)}.`;
  return el(
    "div",
    { class: "pair" },
    el("h3", {}, el("span", { class: `badge ${pair.suggestion}` }, pair.suggestion), `${pair.label} · ${pair.other}`),
    el("p", { class: "quiet" }, `${capital(pair.reason)}.${likeness} With both labels merged, the error of all predictions would be ${percent(pair.error_merged, 2)} instead of ${percent(pair.error_before, 2)}.`),
    el("div", { class: "columns" }, direction(pair.label, pair.other, pair.label_as_other, pair.label_examples), direction(pair.other, pair.label, pair.other_as_label, pair.other_examples)),
  );
}

function startPairs() {
  if (!data.pairs.length) return;
  byId("pairs").hidden = false;
  byId("pairs-about").textContent = `Counts are predictions by ${data.summary.in_sample ? "a model that was trained on the examples" : "models that were not trained on the example"}. Merging labels lowers the error because the task becomes easier; that does not show that merging is right.`;
  growing(byId("pair-list"), byId("more-pairs"), data.pairs, pairCard);
}

function startProblems() {
  if (!data.problems.length) return;
  byId("problems").hidden = false;
  const head = el("tr", {}, ...["label", "problem", "why"].map((title) => el("th", { class: "text" }, title)));
  const rows = data.problems.slice(0, 500).map((problem) => el("tr", {}, ...[problem.label, problem.problem, problem.reason].map((text) => el("td", {}, text))));
  byId("problem-table").replaceChildren(head, ...rows);
}

function duplicateCard(duplicate) {
  const rows = duplicate.rows.slice(0, 6);
  return el(
    "div",
    { class: "pair" },
    el("p", {}, el("span", { class: "badge" }, duplicate.kind), capital(duplicate.reason)),
    el("ul", {}, ...rows.map((index, place) => {
      const line = exampleLine(index);
      line.append(seen(` (${duplicate.labels[place]}, ${duplicate.splits ? duplicate.splits[place] : ""} row ${index})`));
      return line;
    })),
  );
}

function startDuplicates() {
  if (!data.duplicates.length) return;
  byId("duplicates").hidden = false;
  growing(byId("duplicate-list"), byId("more-duplicates"), data.duplicates, duplicateCard);
}
