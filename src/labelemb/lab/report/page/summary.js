// The summary: the best numbers large, every run as a dot, all numbers as tables; and the seconds of an epoch.

const meanOf = (method, field) => data.summary.methods[method][field].mean;

/** A table of the command line: its first column names methods, and the best cells of a column stand out. */
function summaryTable({ header, rows, best }) {
  const body = rows.map(([method, ...cells], row) =>
    el(
      "tr",
      {},
      el("td", {}, swatch(method), ...breakable(method)),
      ...cells.map((cell, column) => titled(header[column + 1], { class: best[row][column + 1] ? "best" : null }, cell)),
    ),
  );
  const head = el("tr", {}, ...header.map((title) => el("th", { scope: "col" }, title)));
  const table = el("table", { class: "cards" }, el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${header[2]} and more` }, table);
}

function startSummary() {
  if (!data.summary) return;
  byId("results").hidden = false;
  byId("strip-about").textContent = `${capital(data.score.axis)} of every run (dots) and mean of each method (bar). Further ${data.score.higher ? "right" : "left"} is better.`;
  byId("summary").append(...data.tables.map(summaryTable));
  byId("remarks").append(...data.summary.notes.map((note) => el("li", {}, note)));
  byId("legend").append(...data.legend.map((point) => el("li", {}, point)));
  for (const { method, value, words } of data.headline) {
    byId("headline").append(el("div", { style: `border-color:${colorOf(method)}` }, el("span", {}, ...breakable(method)), el("b", {}, value), el("span", {}, words)));
  }
}

/** The lines of a method's name that fit into a width, with the value behind the last. */
function nameLines(name, value, room) {
  const ink = el("canvas").getContext("2d");
  ink.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  const fits = (text) => ink.measureText(text).width <= room;
  const lines = [""];
  for (const piece of pieces(name)) {
    if (lines.at(-1) && !fits(lines.at(-1) + piece)) lines.push("");
    let line = lines.pop() + piece;
    while (line.length > 2 && !fits(line)) line = `${line.slice(0, -2)}…`;
    lines.push(line);
  }
  const last = `${lines.at(-1)}  ${value}`;
  return fits(last) ? [...lines.slice(0, -1), last] : [...lines, value];
}

/** One row a method: a dot a run, and a bar at the mean of the summary. */
function drawRows(box, { valueOf, field, title, fromZero, digits, unit }) {
  const shown = shownMethods();
  if (!shown.length) return box.replaceChildren(el("p", { class: "quiet" }, "All methods are switched off."));
  const values = shown.flatMap((method) => method.runs.map(valueOf));
  const high = Math.max(...values);
  const low = fromZero ? 0 : Math.min(...values);
  const room = (high - low) * 0.08 || high * 0.1 || 1;
  const [left, right, lineHeight] = [14, 20, 16];
  const titles = shown.map(({ name }) => nameLines(name, `${meanOf(name, field).toFixed(digits)}${unit}`, Math.max(260, box.clientWidth) - left - right));
  const heights = titles.map((lines) => 28 + lines.length * lineHeight);
  const chart = frame(box, {
    height: heights.reduce((sum, height) => sum + height, 56),
    x: [fromZero ? 0 : Math.max(0, low - room), high + room],
    y: [shown.length, 0],
    xTitle: title,
    yTitle: null,
    label: `${title} of each run`,
    margin: { left, right },
  });
  let y = 10;
  shown.forEach((method, index) => {
    const color = colorOf(method.name);
    const mean = meanOf(method.name, field);
    titles[index].forEach((line, number) => chart.drawing.append(svg("text", { x: left, y: y + 14 + number * lineHeight, class: "strong" }, line)));
    y += heights[index] - lineHeight;
    if (fromZero) chart.plot.append(svg("rect", { x: chart.sx(0), y: y - 6, width: chart.sx(mean) - chart.sx(0), height: 12, fill: color, opacity: 0.35, rx: 3 }));
    else chart.plot.append(svg("line", { x1: chart.edge.left, x2: chart.width - chart.edge.right, y1: y, y2: y, class: "gridline" }));
    chart.plot.append(svg("rect", { x: chart.sx(mean) - 1.75, y: y - 9, width: 3.5, height: 18, fill: color, rx: 1.5 }));
    method.runs.forEach((run) => {
      const dot = svg("circle", { cx: chart.sx(valueOf(run)), cy: y, r: 5, fill: color, "fill-opacity": 0.45, stroke: color });
      dot.addEventListener("pointermove", (event) => showTip(`${method.name}, seed ${run.seed}: ${valueOf(run).toFixed(digits)}${unit}`, event));
      dot.addEventListener("pointerleave", hideTip);
      chart.plot.append(dot);
    });
    y += lineHeight;
  });
}

function startRows() {
  if (!data.methods.length) return;
  byId("quality").hidden = false;
  const draw = () => {
    const { field, axis, unit } = data.score;
    drawRows(byId("strip"), { valueOf: (run) => run.score, field, title: axis, fromZero: false, digits: 2, unit });
    const slowest = Math.max(...data.methods.flatMap((method) => method.runs.map((run) => run.seconds_per_epoch)));
    const digits = slowest < 0.1 ? 3 : slowest < 10 ? 2 : 1;
    drawRows(byId("seconds"), { valueOf: (run) => run.seconds_per_epoch, field: "seconds_per_epoch", title: "seconds per epoch", fromZero: true, digits, unit: " s" });
  };
  on("methods", draw);
  redrawOnResize(byId("strip"), draw);
}
