// The main score over the epochs: each run light, the mean dark; hover for values, drag to zoom, arrow keys to read.

const curves = { view: null, cursor: null, chart: null };

/** Mean, standard deviation and count of a method's runs at an epoch; null where no run has it. */
function atEpoch(method, epoch) {
  const values = method.runs.map((run) => run.scores[run.epochs.indexOf(epoch)]).filter((value) => value !== undefined);
  if (!values.length) return null;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, std: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : null, n: values.length };
}

const epochsOf = (method) => [...new Set(method.runs.flatMap((run) => run.epochs))].sort((a, b) => a - b);
const shownUnfinished = () => data.unfinished.filter((run) => run.epochs.length && !hidden.has(run.method));
const shownRuns = () => [...shownMethods().flatMap((method) => method.runs), ...shownUnfinished()];
const allEpochs = () => [...new Set(shownRuns().flatMap((run) => run.epochs))].sort((a, b) => a - b);

/** The first epochs may run off the chart, so that the later ones can be told apart. */
function wholeView() {
  const runs = shownRuns();
  const last = Math.max(...runs.flatMap((run) => run.epochs), 1);
  const first = Math.min(...runs.flatMap((run) => run.epochs), last);
  const later = runs.flatMap((run) => run.scores.slice(Math.floor(run.scores.length / 5)));
  const low = Math.min(...later);
  const high = Math.max(...later);
  const room = (high - low) * 0.07 || 0.5;
  return { x: [first === last ? first - 1 : first, last], y: [Math.max(0, low - room), high + room] };
}

/** The whole height of what lies between two epochs. */
function viewBetween(from, to) {
  const inside = shownRuns().flatMap((run) => run.scores.filter((_, index) => run.epochs[index] >= from && run.epochs[index] <= to));
  if (!inside.length || to - from < 1) return curves.view;
  const low = Math.min(...inside);
  const high = Math.max(...inside);
  const room = (high - low) * 0.07 || 0.5;
  return { x: [from, to], y: [Math.max(0, low - room), high + room] };
}

function drawCurves() {
  const box = byId("curves");
  if (!shownRuns().length) {
    curves.chart = null;
    return box.replaceChildren(el("p", { class: "quiet" }, "All methods are switched off."));
  }
  const view = curves.view ?? wholeView();
  const chart = frame(box, {
    height: Math.min(420, Math.max(280, box.clientWidth * 0.48)),
    ...view,
    xTitle: "epoch",
    wholeX: true,
    yTitle: data.score.curve_axis,
    label: `${data.score.curve_axis} over the epochs. The arrow keys step through the epochs.`,
  });
  curves.chart = chart;
  const line = (className, method, xs, ys) => {
    chart.plot.append(
      svg("path", { class: className, d: path(xs, ys, chart.sx, chart.sy), style: `stroke:${colorOf(method)}`, "data-method": method, ...(className === "mean" ? { "stroke-dasharray": dashOf(method) } : {}) }),
    );
    // a path through one point has no length
    if (xs.length === 1) chart.plot.append(svg("circle", { class: className, cx: chart.sx(xs[0]), cy: chart.sy(ys[0]), r: className === "mean" ? 4.5 : 3, style: `fill:${colorOf(method)}` }));
  };
  for (const method of shownMethods()) for (const run of method.runs) line("run", method.name, run.epochs, run.scores);
  for (const run of shownUnfinished()) line("unfinished", run.method, run.epochs, run.scores);
  for (const method of shownMethods()) {
    const epochs = epochsOf(method);
    line("mean", method.name, epochs, epochs.map((epoch) => atEpoch(method, epoch).mean));
  }
  chart.drawing.setAttribute("tabindex", "0");
  chart.cursor = svg("g", {});
  chart.drawing.append(chart.cursor);
  readCurves(chart.drawing);
  if (curves.cursor !== null) showEpoch(curves.cursor);
}

/** The vertical line at an epoch, and the values there in words. */
function showEpoch(epoch, event) {
  const { chart } = curves;
  curves.cursor = epoch;
  const lines = [`epoch ${epoch}`];
  const x = chart.sx(epoch);
  const marks = [svg("line", { x1: x, x2: x, y1: chart.edge.top, y2: chart.height - chart.edge.bottom, stroke: "var(--quiet)", "stroke-dasharray": "3 3" })];
  for (const method of shownMethods()) {
    const found = atEpoch(method, epoch);
    if (!found) continue;
    lines.push(`${method.name}: ${fixed(found.mean, 2)}${data.score.unit}${found.std === null ? "" : ` ± ${fixed(found.std, 2)} (${found.n} runs)`}`);
    const y = chart.sy(found.mean);
    if (y >= chart.edge.top && y <= chart.height - chart.edge.bottom) marks.push(svg("circle", { cx: x, cy: y, r: 4.5, style: `fill:${colorOf(method.name)}`, stroke: "var(--card)" }));
  }
  for (const run of shownUnfinished()) {
    const value = run.scores[run.epochs.indexOf(epoch)];
    if (value !== undefined) lines.push(`${run.method}, seed ${run.seed} (unfinished): ${fixed(value, 2)}${data.score.unit}`);
  }
  chart.cursor.replaceChildren(...marks);
  byId("curve-values").textContent = lines.join("  ·  ");
  if (event) showTip(lines.join("\n"), event);
}

function readCurves(drawing) {
  const nearest = (value) => allEpochs().reduce((best, epoch) => (Math.abs(epoch - value) < Math.abs(best - value) ? epoch : best));
  let start = null;
  const band = svg("rect", { fill: "var(--accent)", opacity: 0.15, y: curves.chart.edge.top, height: curves.chart.height - curves.chart.edge.bottom - curves.chart.edge.top, width: 0 });
  drawing.append(band);
  drawing.addEventListener("pointermove", (event) => {
    const { x } = pointerIn(drawing, event);
    showEpoch(nearest(curves.chart.sx.invert(x)), event);
    if (start !== null) {
      band.setAttribute("x", Math.min(start, x));
      band.setAttribute("width", Math.abs(x - start));
    }
  });
  drawing.addEventListener("pointerleave", () => hideTip());
  drawing.addEventListener("pointerdown", (event) => {
    start = pointerIn(drawing, event).x;
  });
  drawing.addEventListener("pointerup", (event) => {
    const { x } = pointerIn(drawing, event);
    if (start !== null && Math.abs(x - start) > 12) {
      const ends = [start, x].map((pixel) => nearest(curves.chart.sx.invert(pixel))).sort((a, b) => a - b);
      curves.view = viewBetween(...ends);
      hideTip();
      drawCurves();
    }
    start = null;
    band.setAttribute("width", 0);
  });
  drawing.addEventListener("dblclick", resetCurves);
  drawing.addEventListener("keydown", (event) => {
    const epochs = allEpochs();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      const place = curves.cursor === null ? (step > 0 ? -1 : epochs.length) : epochs.indexOf(nearest(curves.cursor));
      showEpoch(epochs[Math.max(0, Math.min(epochs.length - 1, place + step))]);
      event.preventDefault();
    } else if (event.key === "+") zoomCurves();
    else if (event.key === "Escape" || event.key === "-") resetCurves();
  });
}

/** The later half of what is shown: that is where methods part. */
function zoomCurves() {
  const [from, to] = (curves.view ?? wholeView()).x;
  curves.view = viewBetween(Math.round((from + to) / 2), to);
  drawCurves();
}
function resetCurves() {
  curves.view = null;
  drawCurves();
}

function startCurves() {
  if (!data.methods.length && !data.unfinished.some((run) => run.epochs.length)) return;
  byId("training").hidden = false;
  byId("training-title").textContent = `${capital(data.score.title)} over the epochs`;
  byId("zoom-in").addEventListener("click", zoomCurves);
  byId("zoom-reset").addEventListener("click", resetCurves);
  on("methods", drawCurves);
  redrawOnResize(byId("curves"), drawCurves);
}
