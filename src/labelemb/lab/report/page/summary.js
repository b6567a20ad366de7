// The summary: the best numbers large, every run as a dot, all numbers as a table; and the seconds of an epoch.

function spread(values, digits) {
  return values.mean === null ? "–" : fixed(values.mean, digits) + (values.n > 1 ? ` ± ${fixed(values.std, digits)}` : "");
}

/** Mean epochs over the runs that reached plain's error, and how many did if not all. */
function reached(values) {
  if (values.mean === null) return "–";
  return fixed(values.mean, 1) + (values.n === values.values.length ? "" : ` (${values.n} of ${values.values.length})`);
}

/** The reduction in words: fewer or more errors than plain. */
function againstPlain({ error_reduction: reduction, test_error: error }) {
  if (reduction == null) return `test error, ${plural(error.n, "run")}`;
  return `${fixed(Math.abs(reduction), 1)} % ${reduction >= 0 ? "fewer" : "more"} errors than plain`;
}

const columns = [
  ["method", (name) => name],
  ["runs", (_, values) => String(values.test_error.n)],
  ["test error %", (_, values) => spread(values.test_error, 2)],
  ["best run", (_, values) => fixed(values.test_error.min, 2)],
  ["reduction", (_, values) => (values.error_reduction == null ? "–" : `${fixed(values.error_reduction, 1)} %`)],
  [
    "difference to plain",
    (_, { against_plain: against }) =>
      against ? signed(against.mean, 2) + (against.low === null ? "" : ` [${signed(against.low, 2)}, ${signed(against.high, 2)}]`) : "–",
  ],
  ["p", (_, { against_plain: against }) => (against && against.p !== null && against.p < 0.001 ? "<0.001" : fixed(against?.p, 3))],
  ["dev error", (_, values) => fixed(values.dev_error.mean, 2)],
  ["s/epoch", (_, values) => fixed(values.seconds_per_epoch.mean, 2)],
  ["epochs to plain", (_, values) => reached(values.epochs_to_plain)],
  ["fluctuation", (_, values) => fixed(values.fluctuation.mean, 3)],
  ["NLL", (_, values) => fixed(values.test_nll.mean, 3)],
  ["ECE", (_, values) => fixed(values.test_ece.mean, 2)],
  ["NLL scaled", (_, values) => fixed(values.test_nll_scaled.mean, 3)],
  ["ECE scaled", (_, values) => fixed(values.test_ece_scaled.mean, 2)],
];

function startSummary() {
  if (!data.summary) return;
  byId("results").hidden = false;
  const entries = Object.entries(data.summary.methods);
  const best = Math.min(...entries.map(([, values]) => values.test_error.mean));
  const head = el("tr", {}, ...columns.map(([title]) => el("th", { scope: "col" }, title)));
  const rows = entries.map(([name, values]) => {
    const cells = columns.map(([, text]) => el("td", {}, text(name, values)));
    cells[0].prepend(swatch(name));
    return el("tr", { class: values.test_error.mean === best && entries.length > 1 ? "best" : null }, ...cells);
  });
  byId("summary").append(el("thead", {}, head), el("tbody", {}, ...rows));
  byId("remarks").append(...data.summary.notes.map((note) => el("li", {}, note)));
  byId("legend").append(...data.legend.map((line) => el("li", {}, line.replace(/^- /, ""))));
  // the baseline and the best of the others say it in one look
  const ranked = entries.filter(([name]) => name !== "plain").sort((a, b) => a[1].test_error.mean - b[1].test_error.mean);
  for (const [name, values] of [...entries.filter(([name]) => name === "plain"), ...ranked.slice(0, 3)]) {
    byId("headline").append(
      el(
        "div",
        { style: `border-color:${colorOf(name)}` },
        el("span", {}, name),
        el("b", {}, `${fixed(values.test_error.mean, 2)} %`),
        el("span", {}, againstPlain(values)),
      ),
    );
  }
}

/** One row a method: a dot a run, and a bar at the mean of the summary. */
function drawRows(box, score, title, { fromZero, digits, unit }) {
  const shown = shownMethods();
  const valueOf = (run) => run[score];
  if (!shown.length) return box.replaceChildren(el("p", { class: "quiet" }, "All methods are switched off."));
  const values = shown.flatMap((method) => method.runs.map(valueOf));
  const high = Math.max(...values);
  const low = fromZero ? 0 : Math.min(...values);
  const room = (high - low) * 0.08 || high * 0.1 || 1;
  const rowHeight = 44;
  const chart = frame(box, {
    height: shown.length * rowHeight + 56,
    x: [fromZero ? 0 : Math.max(0, low - room), high + room],
    y: [shown.length, 0],
    xTitle: title,
    yTitle: null,
    label: `${title} of each run`,
    margin: { left: 14, right: 20 },
  });
  shown.forEach((method, index) => {
    const color = colorOf(method.name);
    const top = 12 + index * rowHeight;
    const { mean } = data.summary.methods[method.name][score];
    chart.drawing.append(
      svg("text", { x: chart.edge.left, y: top + 12, class: "strong" }, `${method.name}  ${mean.toFixed(digits)}${unit}`),
    );
    const y = top + 26;
    if (fromZero) chart.plot.append(svg("rect", { x: chart.sx(0), y: y - 6, width: chart.sx(mean) - chart.sx(0), height: 12, fill: color, opacity: 0.35, rx: 3 }));
    else chart.plot.append(svg("line", { x1: chart.edge.left, x2: chart.width - chart.edge.right, y1: y, y2: y, class: "gridline" }));
    chart.plot.append(svg("rect", { x: chart.sx(mean) - 1.75, y: y - 9, width: 3.5, height: 18, fill: color, rx: 1.5 }));
    method.runs.forEach((run) => {
      const dot = svg("circle", { cx: chart.sx(valueOf(run)), cy: y, r: 5, fill: color, "fill-opacity": 0.45, stroke: color });
      dot.addEventListener("pointermove", (event) => showTip(`${method.name}, seed ${run.seed}: ${valueOf(run).toFixed(digits)}${unit}`, event));
      dot.addEventListener("pointerleave", hideTip);
      chart.plot.append(dot);
    });
  });
}

function startRows() {
  if (!data.methods.length) return;
  byId("quality").hidden = false;
  const draw = () => {
    drawRows(byId("strip"), "test_error", "test error (%)", { fromZero: false, digits: 2, unit: " %" });
    const slowest = Math.max(...data.methods.flatMap((method) => method.runs.map((run) => run.seconds_per_epoch)));
    const digits = slowest < 0.1 ? 3 : slowest < 10 ? 2 : 1;
    drawRows(byId("seconds"), "seconds_per_epoch", "seconds per epoch", { fromZero: true, digits, unit: " s" });
  };
  on("methods", draw);
  redrawOnResize(byId("strip"), draw);
}
