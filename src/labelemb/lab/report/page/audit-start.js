// The head of the page, and everything in its order.

function startHead() {
  const { summary, about } = data;
  const usable = summary.rows - summary.rows_without_prediction - summary.rows_of_absent_labels;
  document.title = `labelemb audit: ${about.recipe}`;
  byId("title").textContent = about.recipe;
  byId("subtitle").textContent = `${plural(data.judged, "example")} (${about.parts.join(", ")}) with ${plural(summary.labels, "label")}, ${about.method}, ${about.folds === 1 ? "one model trained on the examples" : `${about.folds} folds`}`;
  const cards = [
    [`about ${summary.expected_errors.toLocaleString("en")}`, `given labels expected to be wrong (${percent(usable ? summary.expected_errors / usable : null)})`],
    [summary.disagreeing.toLocaleString("en"), "predictions disagree with their label"],
    [data.pairs.length.toLocaleString("en"), "pairs of labels that are confused"],
    [data.numDuplicates.toLocaleString("en"), "groups of duplicates with different labels or in different parts"],
  ];
  byId("cards").replaceChildren(...cards.map(([value, text]) => el("div", { class: "card" }, el("b", {}, value), el("span", {}, text))));
  byId("expectation").textContent =
    `Most of the ${plural(summary.disagreeing, "disagreement")} are mistakes of the models; at most the ${summary.expected_errors.toLocaleString("en")} most suspicious examples are flagged. ` +
    "This number is estimated by confident learning: each label has a threshold, the mean probability that its own examples get." +
    (summary.in_sample ? " The model was trained on these examples, so more labels are wrong than shown. Use --folds 3." : "");
}

function startAbout() {
  const { about } = data;
  const facts = [
    ["Command", about.command || "–"],
    ["Method", `${about.method}, seed ${about.seed}`],
    ["Folds", String(about.folds)],
    ["Judged parts", about.parts.join(", ")],
    ["Data", `SHA-256 ${about.data_digest.slice(0, 12)}…`],
    ["labelemb", about.version],
  ];
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function startContents() {
  const sections = [...document.querySelectorAll("main > section")].filter((section) => !section.hidden);
  byId("contents").replaceChildren(...sections.map((section) => el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
}

startTheme();
startPictures();
loadMarks();
startHead();
startExamples();
startPairs();
startProblems();
startDuplicates();
startAbout();
startContents();
