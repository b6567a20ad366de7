// The examples with the most confident errors, and a table of all labels that can be sorted.

const mostRows = innerWidth > 760 ? 100 : 20; // a row is a card on a narrow screen

/** A button that chooses a label of the space on show; elsewhere its name alone. */
function labelLink(name) {
  const index = state.space?.place.get(name);
  if (index === undefined) return el("span", {}, ...breakable(name));
  return el("button", { type: "button", class: "link", onclick: () => { chooseLabel(index); byId("labels").scrollIntoView(); } }, ...breakable(name));
}

function drawWorst() {
  const { examples } = data.worst[Number(byId("worst-run").value)];
  const rows = examples.map((example) => {
    const name = example.file || `test image ${example.number}`;
    const input = example.picture
      ? el("img", { src: `data:image/png;base64,${example.picture}`, alt: name, title: name, class: "thumbnail" })
      : example.text || `test example ${example.number}`;
    return el(
      "tr",
      {},
      titled("input", { class: "text wide" }, input),
      titled("label", { class: "text" }, labelLink(example.label)),
      titled("predicted", { class: "text" }, labelLink(example.predicted)),
      titled("probability", {}, fixed(example.probability, 3)),
    );
  });
  if (!rows.length) rows.push(el("tr", {}, el("td", { class: "text", colspan: 4 }, "none")));
  const head = ["input", "label", "predicted", "probability"].map((title, index) => el("th", { scope: "col", class: index < 3 ? "text" : null }, title));
  byId("worst-table").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

function startWorst() {
  if (!data.worst.length) return;
  byId("worst").hidden = false;
  const choice = byId("worst-run");
  data.worst.forEach(({ title }, index) => choice.append(el("option", { value: index }, title)));
  choice.parentElement.parentElement.hidden = data.worst.length < 2;
  choice.addEventListener("change", drawWorst);
  drawWorst();
}

const labelColumns = [
  { title: "label", of: (row) => row.label, cell: (row) => labelLink(row.label), text: true },
  { title: "examples", of: (row) => row.examples },
  { title: "error (%)", of: (row) => row.error, cell: (row) => fixed(row.error, 1), down: true },
  { title: "most confused with", of: (row) => row.confused, cell: (row) => (row.confusedWith === null ? "–" : el("span", {}, labelLink(row.confusedWith), ` (${row.confused})`)), text: true, down: true },
  { title: "nearest label", of: (row) => row.similarity, cell: (row) => (row.nearest === null ? "–" : el("span", {}, labelLink(row.nearest), ` (${short(row.similarity)})`)), text: true, down: true },
  { title: "ever observed right", of: (row) => row.observed, cell: (row) => (row.observed === null ? "–" : row.observed ? "yes" : "no"), text: true },
];
const labelOrder = { column: 2, down: true, all: false };

/** One row a label: of the space on show, or of the first method's confusions where no method has a space. */
function labelRows() {
  const table = state.space ? null : data.methods.find((method) => method.confusion)?.confusion;
  if (!state.space && !table) return [];
  const names = state.space ? state.space.names : table.labels;
  const confusion = state.space ? state.space.confusion : { counts: new Map(table.wrong.map(([target, predicted, count]) => [target * names.length + predicted, count])), examples: table.examples };
  const rows = names.map((label) => ({ label, examples: null, error: null, confused: null, confusedWith: null, nearest: null, similarity: null, observed: null }));
  if (confusion) {
    const wrong = new Float64Array(names.length);
    rows.forEach((row, index) => { row.examples = confusion.examples[index]; row.confused = 0; });
    for (const [cell, count] of confusion.counts) {
      const [target, predicted] = [Math.floor(cell / names.length), cell % names.length];
      wrong[target] += count;
      if (count > rows[target].confused) Object.assign(rows[target], { confused: count, confusedWith: names[predicted] });
    }
    rows.forEach((row, index) => { row.error = row.examples ? (100 * wrong[index]) / row.examples : null; });
  }
  if (state.space) {
    rows.forEach((row, index) => {
      const [near] = state.space.unlearned.has(index) ? [] : neighborsOf(index); // they mean nothing there
      if (near) Object.assign(row, { nearest: names[near[0]], similarity: near[1] });
      if (state.space.counted) row.observed = !state.space.unlearned.has(index);
    });
  }
  return rows;
}

/** Rows in the chosen order; what is not known comes last either way. */
function sortedRows(rows) {
  const { of } = labelColumns[labelOrder.column];
  const sign = labelOrder.down ? -1 : 1;
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en") : a - b);
  return [...rows].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * compare(x, y) || compare(a.label, b.label);
  });
}

function sortLabels(column) {
  labelOrder.down = labelOrder.column === column ? !labelOrder.down : Boolean(labelColumns[column].down);
  labelOrder.column = column;
  drawLabels();
}

function drawLabels() {
  const rows = sortedRows(labelRows());
  byId("all-labels").hidden = !rows.length;
  const shown = labelOrder.all ? rows : rows.slice(0, mostRows);
  const columns = labelColumns.filter(({ of }) => rows.some((row) => of(row) !== null));
  const head = columns.map((column) => {
    const number = labelColumns.indexOf(column);
    const chosen = number === labelOrder.column;
    const sort = el("button", { type: "button", class: "sort", onclick: () => sortLabels(number) }, `${column.title}${chosen ? (labelOrder.down ? " ▾" : " ▴") : ""}`);
    return el("th", { scope: "col", class: column.text ? "text" : null, "aria-sort": chosen ? (labelOrder.down ? "descending" : "ascending") : "none" }, sort);
  });
  const body = shown.map((row) => el("tr", {}, ...columns.map((column) => titled(column.title, { class: column.text ? "text" : null }, column.cell ? column.cell(row) : String(column.of(row) ?? "–")))));
  byId("label-table").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
  byId("label-order").replaceChildren(...columns.map((column) => el("option", { value: labelColumns.indexOf(column), selected: labelColumns.indexOf(column) === labelOrder.column }, column.title)));
  const confusion = state.space ? state.space.confusion : data.methods.find((method) => method.confusion)?.confusion;
  byId("label-about").textContent = confusion ? `Examples and errors of the test set, summed over ${plural(confusion.runs, "run")}.` : "Errors per label are saved only for up to 500 labels.";
  byId("more-labels").hidden = shown.length === rows.length;
  byId("more-labels").textContent = `Show all ${rows.length.toLocaleString("en")} labels`;
}

function startLabels() {
  if (!data.spaces.length && !data.methods.some((method) => method.confusion)) return;
  byId("label-order").addEventListener("change", () => sortLabels(Number(byId("label-order").value)));
  byId("more-labels").addEventListener("click", () => {
    labelOrder.all = true;
    drawLabels();
  });
  if (data.spaces.length) on("space", () => { drawLabels(); if (data.worst.length) drawWorst(); });
  else drawLabels();
}
