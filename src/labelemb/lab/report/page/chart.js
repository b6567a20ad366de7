// Axes and scales of the line charts, drawn as SVG.

/** An SVG element. */
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Round values between two limits, about `count` of them and at least `least` apart. */
function ticks(low, high, count, least = 0) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = Math.max(least, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? power);
  const values = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) values.push(+(index * step).toPrecision(12));
  return values;
}

/** A function from values to pixels; `invert` goes back. */
function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.invert = (pixel) => low + ((pixel - from) / (to - from)) * span;
  return scale;
}

/** An empty chart with grid and axes: gives the drawing, the group to draw in (cut at the frame) and both scales. */
function frame(box, { height, x, y, xTitle, yTitle, label, wholeX = false, margin = {} }) {
  const width = Math.max(260, Math.round(box.clientWidth));
  const edge = { top: 12, right: 14, bottom: 42, left: 52, ...margin };
  const sx = linear(x[0], x[1], edge.left, width - edge.right);
  const sy = linear(y[0], y[1], height - edge.bottom, edge.top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const value of ticks(x[0], x[1], width / 90, wholeX ? 1 : 0)) {
    drawing.append(
      svg("line", { class: "gridline", x1: sx(value), x2: sx(value), y1: edge.top, y2: height - edge.bottom }),
      svg("text", { x: sx(value), y: height - edge.bottom + 17, "text-anchor": "middle" }, String(value)),
    );
  }
  if (yTitle !== null) {
    for (const value of ticks(y[0], y[1], height / 60)) {
      drawing.append(
        svg("line", { class: "gridline", x1: edge.left, x2: width - edge.right, y1: sy(value), y2: sy(value) }),
        svg("text", { x: edge.left - 8, y: sy(value) + 4, "text-anchor": "end" }, String(value)),
      );
    }
    const middle = (edge.top + height - edge.bottom) / 2;
    drawing.append(svg("text", { transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
  }
  drawing.append(
    svg("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: height - edge.bottom, y2: height - edge.bottom }),
    svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 6, "text-anchor": "middle" }, xTitle),
  );
  const clip = `clip-${box.id}`;
  drawing.append(
    svg("clipPath", { id: clip }, svg("rect", { x: edge.left - 6, y: edge.top - 6, width: width - edge.left - edge.right + 12, height: height - edge.bottom - edge.top + 12 })),
  );
  const plot = svg("g", { "clip-path": `url(#${clip})` });
  drawing.append(plot);
  box.replaceChildren(drawing);
  return { drawing, plot, sx, sy, edge, width, height };
}

/** A path through points; a point without a value breaks it. */
function path(xs, ys, sx, sy) {
  let text = "";
  let pen = "M";
  xs.forEach((x, index) => {
    if (ys[index] === null) pen = "M";
    else {
      text += `${pen}${sx(x).toFixed(1)} ${sy(ys[index]).toFixed(1)}`;
      pen = "L";
    }
  });
  return text;
}

/** Where the pointer is, in the drawing's own pixels. */
function pointerIn(drawing, event) {
  const box = drawing.getBoundingClientRect();
  const ratio = drawing.viewBox.baseVal.width / box.width;
  return { x: (event.clientX - box.left) * ratio, y: (event.clientY - box.top) * ratio };
}
