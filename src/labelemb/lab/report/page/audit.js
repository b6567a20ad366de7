// The examples of the page by their index, their pictures, and the marks that the reader gives them.

const names = data.labels;
const examples = data.examples.map((values, cell) => ({ cell, ...Object.fromEntries(data.fields.map((field, place) => [field, values[place]])) }));
const byIndex = new Map(examples.map((example) => [example.index, example]));
const nameOf = (label) => (label === null ? "–" : names[label]);
const percent = (value, digits = 1) => (value === null ? "–" : `${(100 * value).toFixed(digits)} %`);
const probability = (value) => (value === null ? "–" : value.toFixed(3));

const markWords = { w: "wrong", f: "fine", u: "unsure" };
const storageKey = `labelemb-audit-${data.about.data_digest}-${data.about.method}-${data.about.folds}`;
/** Marks by index: {mark, label}. Kept by the browser, so that closing the page loses none of them. */
const marks = new Map();

function loadMarks() {
  try {
    for (const [index, entry] of JSON.parse(localStorage.getItem(storageKey) ?? "[]")) if (byIndex.has(index)) marks.set(index, entry);
  } catch {
    // a browser that stores nothing for files
  }
}

function saveMarks() {
  try {
    localStorage.setItem(storageKey, JSON.stringify([...marks]));
  } catch {
    // the same
  }
  tell("marks");
}

/** Mark an example; the same mark again takes it away. A wrong one gets the suggested label. */
function mark(example, word) {
  const before = marks.get(example.index);
  if (before?.mark === word) marks.delete(example.index);
  else marks.set(example.index, { mark: word, label: word === "wrong" ? (before?.label || nameOf(example.suggested)) : "" });
  saveMarks();
}

function relabel(example, label) {
  marks.set(example.index, { mark: "wrong", label: label.trim() });
  saveMarks();
}

/** The picture of an example as one element in a list, empty where there is none. */
function picture(example) {
  if (!data.pictures) return [];
  const { across, size: [width, height] } = data.pictures;
  const [x, y] = [example.cell % across, Math.floor(example.cell / across)];
  const scale = data.pictures.scale;
  return [el("span", { class: "thumb", role: "img", "aria-label": example.input, style: `background-position:${-x * width * scale}px ${-y * height * scale}px` })];
}

/** One rule holds the sheet of pictures, so that thousands of them do not repeat it. */
function startPictures() {
  const sheet = data.pictures;
  if (!sheet) return;
  const [width, height] = sheet.size;
  sheet.scale = 64 / Math.max(width, height);
  const rows = Math.ceil(sheet.count / sheet.across);
  const shown = [width, height, sheet.across * width, rows * height].map((length) => `${length * sheet.scale}px`);
  document.styleSheets[0].insertRule(
    `.thumb { background-image: url(data:image/png;base64,${sheet.png}); width: ${shown[0]}; height: ${shown[1]}; background-size: ${shown[2]} ${shown[3]}; }`,
  );
}

/** A cell of CSV that no spreadsheet takes for a formula: an apostrophe comes before what it would execute. */
function csvCell(value) {
  let text = String(value ?? "").replaceAll("\0", "");
  if (/^[ ']*[=+\-@\t\r\n＝＋－＠]/.test(text)) text = `'${text}`;
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function correctionsCsv() {
  const header = ["index", "id", "split", "given_label", "mark", "label", data.source];
  const rows = [...marks].sort(([a], [b]) => a - b).map(([index, entry]) => {
    const example = byIndex.get(index);
    return [index, example.id, example.split, nameOf(example.given), entry.mark, entry.label, example.input];
  });
  return "\ufeff" + [header, ...rows].map((row) => row.map(csvCell).join(",") + "\n").join("");
}

function download() {
  const url = URL.createObjectURL(new Blob([correctionsCsv()], { type: "text/csv" }));
  const link = el("a", { href: url, download: "corrections.csv" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
