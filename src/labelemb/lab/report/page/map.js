// The map of all labels, on a canvas: drag to move, buttons or + and - to zoom, click to choose a label.

const view = { x: 0, y: 0, zoom: 1, width: 0, height: 0 };
const groupColors = ["--m0", "--m1", "--m2", "--m3", "--m4", "--m5"];

const mapScale = () => (Math.min(view.width, view.height) / 2) * 0.86 * view.zoom;
function onScreen(index) {
  const { positions } = state.space;
  const scale = mapScale();
  return [view.width / 2 + (positions[2 * index] - view.x) * scale, view.height / 2 - (positions[2 * index + 1] - view.y) * scale];
}

/** A colour a label where there are few groups, else one for all. */
function pointColor() {
  const groups = Object.values(state.space.groups);
  const [same, rest] = [css("--m0"), css("--plain")];
  if (!groups.length || groups.length > groupColors.length) return () => same;
  const color = new Map();
  groups.forEach((members, number) => {
    const shade = css(groupColors[number]);
    for (const name of members) color.set(state.space.place.get(name), shade);
  });
  return (index) => color.get(index) ?? rest;
}

function drawMap() {
  const canvas = byId("map");
  const { names } = state.space;
  view.width = canvas.clientWidth;
  view.height = canvas.clientHeight;
  if (!view.width) return;
  const context = sharp(canvas, view.width, view.height);
  const colorAt = pointColor();
  const radius = names.length > 5000 ? 1.2 : names.length > 300 ? 2.2 : 3.5;
  context.globalAlpha = names.length > 5000 ? 0.45 : 0.75;
  for (let index = 0; index < names.length; index++) {
    const [x, y] = onScreen(index);
    if (x < -5 || y < -5 || x > view.width + 5 || y > view.height + 5) continue;
    context.fillStyle = colorAt(index);
    if (names.length > 5000) {
      context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius); // many times faster than circles
      continue;
    }
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fill();
  }
  context.globalAlpha = 1;
  drawChosen(context, radius);
  writeNames(context);
}

/** The chosen label with lines to its nearest. */
function drawChosen(context, radius) {
  const [x, y] = onScreen(state.label);
  const near = neighborsOf(state.label).slice(0, 8);
  context.strokeStyle = css("--m1");
  context.fillStyle = css("--m1");
  near.forEach(([index, value]) => {
    const [toX, toY] = onScreen(index);
    context.globalAlpha = 0.25 + (0.6 * value) / near[0][1];
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(toX, toY);
    context.stroke();
  });
  context.globalAlpha = 1;
  context.beginPath();
  context.arc(x, y, radius + 3, 0, 7);
  context.fill();
}

/** As many names as fit without touching: the chosen label and its nearest first. */
function writeNames(context) {
  const { names } = state.space;
  const near = neighborsOf(state.label).map(([index]) => index);
  const order = new Set([state.label, ...near.slice(0, 8), ...names.keys()]);
  const taken = [];
  let tried = 0;
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.strokeStyle = css("--page");
  for (const index of order) {
    if (taken.length >= 70 || tried >= 2000) break;
    const [x, y] = onScreen(index);
    if (x < 0 || y < 8 || x > view.width || y > view.height - 8) continue;
    tried++;
    const name = visible(names[index]);
    const text = name.length > 28 ? `${name.slice(0, 27)}…` : name;
    const width = context.measureText(text).width;
    const left = x + 8 + width > view.width ? x - 8 - width : x + 8;
    const box = [left - 3, y - 8, left + width + 3, y + 8];
    if (box[0] < 0 || taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
    taken.push(box);
    context.strokeText(text, left, y);
    context.fillStyle = css(index === state.label ? "--m1" : near.slice(0, 8).includes(index) ? "--ink" : "--quiet");
    context.fillText(text, left, y);
  }
}

/** The label whose point is nearest to a place on the canvas, null beyond 24 pixels. */
function labelAt(x, y) {
  let best = null;
  let least = 24 ** 2;
  for (let index = 0; index < state.space.names.length; index++) {
    const [pointX, pointY] = onScreen(index);
    const distance = (pointX - x) ** 2 + (pointY - y) ** 2;
    if (distance < least) [best, least] = [index, distance];
  }
  return best;
}

function zoomMap(factor) {
  view.zoom = Math.max(1, Math.min(200, view.zoom * factor));
  if (view.zoom === 1) view.x = view.y = 0;
  drawMap();
}

function startMap() {
  if (!data.spaces.length) return;
  const canvas = byId("map");
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && event.buttons) {
      const dx = event.offsetX - drag.x;
      const dy = event.offsetY - drag.y;
      if (drag.moved || Math.hypot(dx, dy) > 4) {
        view.x -= dx / mapScale();
        view.y += dy / mapScale();
        drag = { x: event.offsetX, y: event.offsetY, moved: true };
        hideTip();
        drawMap();
      }
      return;
    }
    const index = labelAt(event.offsetX, event.offsetY);
    if (index === null) hideTip();
    else showTip(state.space.names[index], event);
  });
  canvas.addEventListener("pointerup", (event) => {
    const index = drag && !drag.moved ? labelAt(event.offsetX, event.offsetY) : null;
    drag = null;
    if (index !== null) chooseLabel(index);
  });
  canvas.addEventListener("pointerleave", () => {
    drag = null;
    hideTip();
  });
  canvas.addEventListener("dblclick", () => zoomMap(2));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.key === "+") zoomMap(1.5);
    else if (event.key === "-") zoomMap(1 / 1.5);
    else if (move) {
      view.x += (move[0] * 0.15) / view.zoom;
      view.y += (move[1] * 0.15) / view.zoom;
      drawMap();
      event.preventDefault();
    }
  });
  byId("map-in").addEventListener("click", () => zoomMap(1.6));
  byId("map-out").addEventListener("click", () => zoomMap(1 / 1.6));
  byId("map-reset").addEventListener("click", () => zoomMap(0));
  on("label", drawMap);
  on("theme", drawMap);
  on("space", () => {
    byId("map-about").textContent = `Labels that are similar to the same labels are close together. Two dimensions keep ${Math.round(100 * state.space.map.share)} % of the differences, so the bars are more reliable than the distances. Click a point to select its label.`;
  });
  redrawOnResize(canvas, drawMap);
}
