// Two matrices side by side with the same labels in the same order: what is similar, and what is confused.

const matrices = { labels: [], cell: null, tables: null };
const mostCells = 500;
// from the page's own background to a strong colour: readable on screen in both themes, and cheap to print
const ramps = {
  light: [[255, 255, 255], [214, 230, 244], [140, 190, 226], [49, 124, 183], [8, 48, 107]],
  dark: [[22, 29, 38], [20, 62, 98], [28, 112, 150], [92, 184, 170], [250, 238, 150]],
};

/** The colour of a value between 0 and 1. */
function rampColor(value) {
  const ramp = ramps[document.documentElement.dataset.theme];
  const place = Math.max(0, Math.min(1, value)) * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[index].map((low, channel) => Math.round(low + (place - index) * (ramp[index + 1][channel] - low)));
}

/** A pixel a cell: drawn once and stretched, so that moving over 500 labels stays quick. */
function tableImage({ values, low, high }) {
  const size = values.length;
  const canvas = el("canvas", { width: size, height: size });
  const image = new ImageData(size, size);
  const span = high - low || 1;
  values.forEach((row, y) => row.forEach((value, x) => image.data.set([...rampColor((value - low) / span), 255], 4 * (y * size + x))));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The values to colour; the diagonal would outshine the rest, so it does not set the scale. */
function similarityTable(labels) {
  const values = labels.map((label) => labels.map((other) => similarity(label, other)));
  const rest = values.flatMap((row, y) => row.filter((_, x) => x !== y));
  return { values, low: rest.length ? rest.reduce((a, b) => Math.min(a, b)) : 0, high: rest.length ? rest.reduce((a, b) => Math.max(a, b)) : 1 };
}
function confusionTable(labels) {
  const { examples } = state.space.confusion;
  const share = (target, predicted) => (examples[target] ? confused(target, predicted) / examples[target] : 0);
  const values = labels.map((target) => labels.map((predicted) => share(target, predicted)));
  const rest = values.flatMap((row, y) => row.filter((_, x) => x !== y));
  return { values, low: 0, high: rest.reduce((a, b) => Math.max(a, b), 0) || 1 };
}

function drawMatrix(box, table, labels) {
  const canvas = box.querySelector("canvas");
  const width = box.clientWidth;
  const names = labels.map((label) => visible(state.space.names[label]));
  const named = labels.length <= Math.max(12, width / 11);
  const { fontSize, side } = named ? sideOf(sharp(canvas, 1, 1), names, width) : { fontSize: 0, side: 2 };
  const size = width - side;
  canvas.style.height = `${width}px`;
  const ink = sharp(canvas, width, width);
  const step = size / labels.length;
  ink.imageSmoothingEnabled = false;
  ink.drawImage(table.image, side, 0, size, size);
  ink.strokeStyle = css("--line");
  ink.strokeRect(side + 0.5, 0.5, size - 1, size - 1);
  if (named) writeSides(ink, names, { side, size, step, fontSize });
  if (matrices.cell) {
    ink.strokeStyle = css("--m1");
    ink.lineWidth = 2;
    ink.strokeRect(side + matrices.cell.x * step, matrices.cell.y * step, Math.max(4, step), Math.max(4, step));
  }
  Object.assign(canvas, { side, step });
}

const sideFont = (fontSize) => `${fontSize}px system-ui, 'DejaVu Sans', sans-serif`;
const lineHeightOf = (fontSize) => fontSize + 2;

/** The largest font whose lines fit into the cells, or the smallest, and the room that the names take. */
function sideOf(ink, names, width) {
  const smallest = 9;
  for (let fontSize = 13; ; fontSize--) {
    ink.font = sideFont(fontSize);
    const side = Math.min(Math.max(...names.map((name) => ink.measureText(name).width)) + 8, width * 0.3);
    if (fontSize === smallest || lineHeightOf(fontSize) <= (width - side) / names.length) return { fontSize, side };
  }
}

/** Write the names at the left and below; where cells are lower than a line only every second or third. */
function writeSides(ink, names, { side, size, step, fontSize }) {
  const every = Math.ceil(lineHeightOf(fontSize) / step);
  ink.font = sideFont(fontSize);
  ink.fillStyle = css("--quiet");
  ink.textBaseline = "middle";
  names.forEach((name, index) => {
    if (index % every) return;
    let text = name;
    while (text.length > 2 && ink.measureText(text).width > side - 6) text = `${text.slice(0, -2)}…`;
    ink.textAlign = "right";
    ink.fillText(text, side - 5, (index + 0.5) * step);
    ink.save();
    ink.translate(side + (index + 0.5) * step, size + 5);
    ink.rotate(-Math.PI / 2);
    ink.fillText(text, 0, 0);
    ink.restore();
  });
}

function drawScale(id, words, low, high) {
  const colors = [0, 0.25, 0.5, 0.75, 1].map((value) => `rgb(${rampColor(value).join(" ")})`);
  byId(id).replaceChildren(el("span", {}, low), el("span", { class: "ramp", style: `background:linear-gradient(90deg,${colors.join(",")})` }), el("span", {}, high), el("span", {}, words));
}

/** Colour the shown labels anew: after another choice of labels, or another theme. */
function colorMatrices() {
  const { labels } = matrices;
  const { confusion } = state.space;
  byId("confusion-figure").hidden = !confusion;
  byId("matrices-title").textContent = confusion ? "Similarity and confusion of labels" : "Similarity of labels";
  if (!labels.length) return;
  const similar = similarityTable(labels);
  const wrong = confusion && confusionTable(labels);
  matrices.tables = { similar, wrong };
  for (const table of [similar, wrong]) if (table) table.image = tableImage(table);
  const most = short(similar.high);
  drawScale("heatmap-scale", "similarity of row to column", short(similar.low), most === "1" ? most : `${most} and more`);
  if (wrong) drawScale("confusion-scale", "of row predicted as column", "0 %", wrong.high < 1 ? `${short(100 * wrong.high)} % and more` : "100 %");
  drawMatrices();
}

function drawMatrices() {
  if (!matrices.tables) return;
  drawMatrix(byId("heatmap-box"), matrices.tables.similar, matrices.labels);
  if (matrices.tables.wrong) drawMatrix(byId("confusion-box"), matrices.tables.wrong, matrices.labels);
}

/** The cell's values in words, for pointer and keyboard alike. */
function describeCell({ x, y }) {
  const [row, column] = [matrices.labels[y], matrices.labels[x]];
  const { names, confusion } = state.space;
  const words = [`${names[row]} → ${names[column]}: similarity ${short(similarity(row, column))}`];
  if (confusion) {
    const count = confused(row, column);
    words.push(row === column ? `right ${count} of ${confusion.examples[row]}` : `predicted as it ${count} of ${confusion.examples[row]}`);
  }
  return words.join(" · ");
}

function readMatrix(canvas) {
  const clamp = (value) => Math.max(0, Math.min(matrices.labels.length - 1, value));
  const go = (cell, event) => {
    const moved = cell.x !== matrices.cell?.x || cell.y !== matrices.cell?.y;
    matrices.cell = cell;
    byId("cell").textContent = visible(describeCell(cell));
    if (event) showTip(describeCell(cell).replaceAll(" · ", "\n"), event);
    if (moved) drawMatrices();
  };
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.floor((event.offsetX - canvas.side) / canvas.step);
    const y = Math.floor(event.offsetY / canvas.step);
    if (x >= 0 && y >= 0 && x < matrices.labels.length && y < matrices.labels.length) go({ x, y }, event);
    else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", () => matrices.cell && chooseLabel(matrices.labels[matrices.cell.y]));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const cell = matrices.cell ?? { x: 0, y: 0 };
    if (step) {
      go({ x: clamp(cell.x + step[0]), y: clamp(cell.y + step[1]) });
      event.preventDefault();
    } else if (event.key === "Enter" && matrices.cell) chooseLabel(matrices.labels[matrices.cell.y]);
  });
}

/** Add a label to the hand-picked ones and show them. */
function pick(label) {
  if (!state.picked.includes(label)) state.picked.push(label);
  fillShown();
  byId("shown").value = "picked";
  chooseShown();
}

function fillShown() {
  const { names, groups, order } = state.space;
  const options = [];
  if (order) options.push(["clustered", `all ${names.length} labels, clustered`], ["all", "all labels in their original order"]);
  options.push(["near", "the chosen label and its nearest"]);
  if (state.picked.length) options.push(["picked", "labels you added"]);
  for (const [group, members] of Object.entries(groups)) if (members.length <= mostCells) options.push([`group:${group}`, `group ${group} (${members.length})`]);
  const before = byId("shown").value;
  byId("shown").replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) byId("shown").value = before;
}

function chooseShown() {
  const { names, groups, order, place } = state.space;
  const wanted = byId("shown").value;
  if (wanted === "clustered") matrices.labels = order;
  else if (wanted === "all") matrices.labels = [...names.keys()];
  else if (wanted === "near") matrices.labels = [state.label, ...neighborsOf(state.label).map(([index]) => index)];
  else if (wanted === "picked") matrices.labels = state.picked;
  else matrices.labels = groups[wanted.slice("group:".length)].map((name) => place.get(name));
  matrices.cell = null;
  const chips = wanted === "picked" ? state.picked : [];
  byId("chips").replaceChildren(
    ...chips.map((label) => el("button", { type: "button", "aria-label": `Remove ${names[label]}`, onclick: () => unpick(label) }, `${names[label]} ×`)),
  );
  colorMatrices();
}
function unpick(label) {
  state.picked = state.picked.filter((other) => other !== label);
  fillShown();
  chooseShown();
}

function startMatrices() {
  if (!data.spaces.length) return;
  for (const id of ["heatmap-box", "confusion-box"]) {
    const title = id === "heatmap-box" ? "Similarity of labels" : "Confusion of labels";
    const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${title}. The arrow keys read the cells, Enter selects a row's label.` });
    byId(id).append(canvas);
    readMatrix(canvas);
  }
  byId("shown").addEventListener("change", chooseShown);
  on("space", () => {
    fillShown();
    byId("shown").selectedIndex = 0;
    matrices.labels = [];
    matrices.tables = null;
  });
  on("label", () => {
    if (!matrices.labels.length || byId("shown").value === "near") chooseShown();
  });
  on("theme", () => state.space && colorMatrices());
  redrawOnResize(byId("heatmap-box"), drawMatrices);
}
