// The label space on show: similarities, neighbours, confusions, and which label is chosen.

const state = { space: null, label: null, picked: [] };

/** Unpack a space the first time it is shown. */
function openSpace(number) {
  const stored = data.spaces[number];
  if (!stored.opened) {
    stored.opened = {
      ...stored,
      indices: unpack(stored.neighbors.indices, Int32Array),
      similarities: unpack(stored.neighbors.similarities, Float32Array),
      own: unpack(stored.own, Float32Array),
      positions: unpack(stored.map.positions, Float32Array),
      matrix: stored.matrix ? unpack(stored.matrix, Float32Array) : null,
      place: new Map(stored.names.map((name, index) => [name, index])),
      folded: stored.names.map((name) => name.toLowerCase()),
      unlearned: new Set(stored.unlearned),
      confusion: confusionOf(stored),
    };
  }
  state.space = stored.opened;
}

/** Wrong predictions of the space's method by [target, predicted], in the order of the space's labels. */
function confusionOf(space) {
  const table = data.methods.find((method) => method.name === space.method)?.confusion;
  if (!table) return null;
  const place = new Map(space.names.map((name, index) => [name, index]));
  const there = table.labels.map((name) => place.get(name));
  const size = space.names.length;
  const counts = new Map();
  for (const [target, predicted, count] of table.wrong) counts.set(there[target] * size + there[predicted], count);
  const examples = new Float64Array(size);
  table.examples.forEach((count, index) => {
    examples[there[index]] = count;
  });
  return { counts, examples, runs: table.runs };
}

/** The nearest labels of a label, best first: [[index, similarity], ...]. */
function neighborsOf(label) {
  const { indices, similarities, neighbors } = state.space;
  const found = [];
  for (let at = label * neighbors.k; at < (label + 1) * neighbors.k && indices[at] >= 0; at++) found.push([indices[at], similarities[at]]);
  return found;
}

/** How similar `other` is to `label`; where only the nearest are stored, 0 for the rest. */
function similarity(label, other) {
  const { matrix, own, names } = state.space;
  if (matrix) return matrix[label * names.length + other];
  if (label === other) return own[label];
  return neighborsOf(label).find(([index]) => index === other)?.[1] ?? 0;
}

/** How often `target` was taken for `predicted`; null where that is not known. */
function confused(target, predicted) {
  const { confusion, names } = state.space;
  if (!confusion) return null;
  if (target !== predicted) return confusion.counts.get(target * names.length + predicted) ?? 0;
  let right = confusion.examples[target];
  for (let other = 0; other < names.length; other++) right -= confusion.counts.get(target * names.length + other) ?? 0;
  return right;
}

function chooseLabel(index) {
  state.label = index;
  tell("label");
}

function startSpace() {
  if (!data.spaces.length) return;
  for (const id of ["labels", "matrices", "pairs"]) byId(id).hidden = false;
  const choice = byId("space");
  data.spaces.forEach((space, index) => choice.append(el("option", { value: index }, space.title)));
  byId("space-choice").hidden = data.spaces.length < 2;
  const show = () => {
    const name = state.space?.names[state.label];
    openSpace(Number(choice.value));
    const { names, title } = state.space;
    byId("labels-about").textContent = `${plural(names.length, "label")}, learned by ${title}. The row of a label is its learned distribution over all labels.`;
    state.label = state.space.place.get(name) ?? state.space.pairs[0]?.[0] ?? 0;
    state.picked = [];
    tell("space");
    tell("label");
  };
  choice.addEventListener("change", show);
  show();
}
