// The reliability diagram: accuracy against confidence, all runs of a method together.

function drawCalibration() {
  const box = byId("calibration");
  const chart = frame(box, {
    height: Math.min(380, Math.max(280, box.clientWidth * 0.72)),
    x: [0, 100],
    y: [0, 100],
    xTitle: "confidence (%)",
    yTitle: "accuracy (%)",
    label: "Accuracy against confidence of each method",
  });
  chart.plot.append(svg("line", { x1: chart.sx(0), y1: chart.sy(0), x2: chart.sx(100), y2: chart.sy(100), stroke: "var(--quiet)", "stroke-dasharray": "5 4" }));
  for (const method of shownMethods()) {
    const bins = method.reliability;
    const total = bins.reduce((sum, bin) => sum + bin.count, 0);
    const color = colorOf(method.name);
    const xs = bins.map((bin) => 100 * bin.confidence);
    const ys = bins.map((bin) => 100 * bin.accuracy);
    chart.plot.append(svg("path", { class: "mean", d: path(xs, ys, chart.sx, chart.sy), style: `stroke:${color};stroke-width:1.6`, "stroke-dasharray": dashOf(method.name) }));
    bins.forEach((bin, index) => {
      const dot = svg("circle", { cx: chart.sx(xs[index]), cy: chart.sy(ys[index]), r: 2.5 + 9 * Math.sqrt(bin.count / total), style: `fill:${color};stroke:${color}`, "fill-opacity": 0.4 });
      dot.addEventListener("pointermove", (event) =>
        showTip(`${method.name}\n${plural(bin.count, "example")} with confidence ${fixed(xs[index], 1)} %\n${fixed(ys[index], 1)} % of them right`, event),
      );
      dot.addEventListener("pointerleave", hideTip);
      chart.plot.append(dot);
    });
  }
}

function startCalibration() {
  if (!data.methods.some((method) => method.reliability.length)) {
    byId("calibration-section").hidden = true;
    return;
  }
  on("methods", drawCalibration);
  redrawOnResize(byId("calibration"), drawCalibration);
}
