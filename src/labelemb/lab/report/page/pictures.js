// Small test images of labels, all on one sheet that is embedded once.

const shownHeight = 40;

/** The pictures of a label as one element in a list, empty where there are none. */
function pictures(name) {
  const found = data.pictures ? data.pictures.place.get(name) : undefined;
  const count = found === undefined ? 0 : data.pictures.counts[found];
  if (!count) return [];
  const { across, per_label: perLabel, scale, size: [height, width] } = data.pictures;
  const cells = Array.from({ length: count }, (_, number) => {
    const cell = perLabel * found + number;
    const [x, y] = [cell % across, Math.floor(cell / across)];
    return el("span", { style: `background-position:${-x * width * scale}px ${-y * height * scale}px` });
  });
  return [el("span", { class: "pictures", role: "img", "aria-label": `${plural(count, "test image")} of ${name}` }, ...cells)];
}

/** One rule holds the sheet, so that hundreds of pictures do not repeat it. */
function startPictures() {
  const sheet = data.pictures;
  if (!sheet) return;
  const [height, width] = sheet.size;
  sheet.place = new Map(sheet.labels.map((name, index) => [name, index]));
  sheet.scale = shownHeight / height;
  const rows = Math.ceil((sheet.labels.length * sheet.per_label) / sheet.across);
  const shown = [width, height, sheet.across * width, rows * height].map((length) => `${length * sheet.scale}px`);
  document.styleSheets[0].insertRule(
    `.pictures span { background-image: url(data:image/png;base64,${sheet.png}); width: ${shown[0]}; height: ${shown[1]}; background-size: ${shown[2]} ${shown[3]}; }`,
  );
}
