// What there is to see in a sublayer: names as recorded, words for people, how to read them, and
// whose edges a picture of addresses shows.

// letter: e = edge slot, r = referral head, a = attention head (the paper's shorthand).
const EDGE_ROWS = [
  { name: "address_ins", title: "Edges in", letter: "e", temps: "sharpener_temps",
    about: "Where each edge of the source points, after sharpening (e1)." },
  { name: "address_ins_e2", title: "Edges in, as e2", letter: "e", temps: "sharpener_temps_e2",
    about: "The same edges, sharpened apart for being collected." },
  { name: "e1_weights", title: "e1 weights", letter: "r", isBars: true,
    about: "How much each head uses each edge slot." },
  { name: "n2_edge_factors", title: "n2 edge factor", letter: "r", isFactor: true,
    temps: "n2_edge_factor_temps", about: "The edge expert on n2: its mixed edges, as scores." },
  { name: "n2_node_factors", title: "n2 node factor", letter: "r", isFactor: true,
    temps: "n2_node_factor_temps", about: "The node expert on n2: query against keys." },
  { name: "e2_factors", title: "e2 factor", letter: "r", isFactor: true, temps: "e2_factor_temps",
    about: "What the edges of each n2 add to its score (log-sum-exp over its slots)." },
  { name: "n2_weights", title: "n2 weights", letter: "r",
    about: "From which nodes a head fetches an edge: softmax of the factors." },
  { name: "address_outs", title: "New edges", letter: "r", isNewEdge: true,
    about: "Where the new edges point. Click one to see which edges it was made of." },
];

const NODE_ROWS = [
  { name: "address_ins", title: "Edges in", letter: "e", temps: "sharpener_temps",
    about: "Where each edge of the source points, after sharpening." },
  { name: "e1_weights", title: "e1 weights", letter: "a", isBars: true,
    about: "How much each head uses each edge slot." },
  { name: "edge_factors", title: "Edge factor", letter: "a", isFactor: true,
    temps: "edge_factor_temps", about: "The edge expert: mixed edges, as scores." },
  { name: "node_factors", title: "Node factor", letter: "a", isFactor: true,
    temps: "node_factor_temps", about: "The node expert: query against keys." },
  { name: "weights", title: "Attention", letter: "a",
    about: "Where each head looks: softmax of the factors." },
];

export const ROWS = { edge: EDGE_ROWS, node: NODE_ROWS };

/** The description of a quantity of a kind of sublayer, or null. */
export function rowOf(kind, name) {
  return ROWS[kind]?.find((row) => row.name === name) ?? null;
}

/** Whether a quantity says where edges point. */
export const isAddress = (row) => row.name.startsWith("address_");

/** The kind of the edges that a board shows, where they stay: `given` or `empty`; else null. */
export function stayOf(info, row, index) {
  return (row.letter === "e" && info.stays[index - info.slots]) || null;
}

/** What a board is called: `e3`, `r0`, `given`. */
export function boardName(info, row, index) {
  return stayOf(info, row, index) ?? `${row.letter}${index}`;
}

/** The paper's shorthand: `l3e2r` for an edge in referral, `l3r2` for a head; rounds have none. */
export function shorthand(sublayer, row, index, info) {
  const isRound = !/^l\d+$/.test(sublayer.short);
  const layer = `${sublayer.short}${sublayer.index ? `.${sublayer.index}` : ""}${isRound ? " " : ""}`;
  if (stayOf(info, row, index)) return `${layer}${isRound ? "" : " "}${boardName(info, row, index)}`;
  if (row.letter !== "e") return `${layer}${row.letter}${index}`;
  return `${layer}e${index}${sublayer.kind === "edge" ? "r" : "a"}`;
}

export function softmax(scores) {
  let top = -Infinity;
  for (const score of scores) if (score > top) top = score;
  const weights = new Float32Array(scores.length);
  let total = 0;
  for (let i = 0; i < scores.length; i++) total += weights[i] = Math.exp(scores[i] - top);
  for (let i = 0; i < scores.length; i++) weights[i] /= total;
  return weights;
}

/** Entropy over its maximum: 0 for one node, 1 for all alike. */
export function normalisedEntropy(weights) {
  let total = 0;
  for (const weight of weights) if (weight > 0) total -= weight * Math.log(weight);
  return weights.length > 1 ? total / Math.log(weights.length) : 0;
}

export function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/**
 * One board's values as they are shown; factors as distributions unless `asScores`. `seen` is how
 * many nodes a source of a causal sequence sees, null where it sees all: an expert has a score for
 * the others as well, but it is not used.
 */
export function boardValues(pack, path, row, index, asScores, seen = null) {
  const values = pack?.slice(`${path}.${row.name}`, index) ?? null;
  if (!values || !row.isFactor) return values;
  const used = seen === null ? values : values.subarray(0, seen);
  const shown = new Float32Array(values.length).fill(asScores ? range(used)[0] : 0);
  shown.set(asScores ? used : softmax(used));
  return shown;
}

/** The temperature of a board, or null. */
export function temperature(pack, path, row, index) {
  const temps = row.temps ? pack?.get(`${path}.${row.temps}`) : null;
  return temps ? temps.values[index] : null;
}

/** The greatest weight, but at least four times that of a uniform board, which is to look pale. */
export function topOf(weights) {
  return weights ? Math.min(1, Math.max(range(weights)[1], 4 / weights.length)) : 1;
}

/** Least and greatest value of the colour scale for each board of a row. */
export function scales(boards, mode, asScores) {
  const ranges = boards.map((values) => (values ? range(values) : [0, 1]));
  if (!asScores) {
    if (mode === "full") return boards.map(() => [0, 1]);
    boards.forEach((values, i) => (ranges[i] = [0, topOf(values)]));
  }
  if (mode === "board") return ranges;
  const present = ranges.filter((_, i) => boards[i]);
  if (!present.length) return ranges;
  const low = Math.min(...present.map((pair) => pair[0]));
  const high = Math.max(...present.map((pair) => pair[1]));
  return boards.map(() => [low, high]);
}

/** The (n2, e2) pairs of a new edge by falling weight: [{cell, slot, weight}]. */
export function contributions(pack, path, slot, count) {
  const array = pack.get(`${path}.e2_weights`);
  if (!array) return null;
  const weights = pack.slice(`${path}.e2_weights`, slot);
  const slots = array.shape[2];
  const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]);
  return order.slice(0, count).map((place) => ({
    cell: Math.floor(place / slots),
    slot: place % slots,
    slots,
    weight: weights[place],
  }));
}

/** A number in few characters: .31, 0.004 as 4e-3. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.01 || size === 0) return value.toFixed(2).replace(/^(-?)0\./, "$1.");
  return value.toExponential(0);
}

export const MODES = ["out", "in", "all"];
const LEAST_ARROW = 0.04; // weight that is worth an arrow, if it is at least twice the uniform one
const LEAST_OF_ALL = 0.15; // the same where every node has one; figures have the same limit

const leastOf = (cells) => Math.max(LEAST_ARROW, 2 / cells);

/** Arrows from a source to where its weight lies: [{from, to, weight}]. */
export function arrowsFrom(source, values) {
  const least = leastOf(values.length);
  const found = [];
  values.forEach((weight, to) => weight >= least && found.push({ from: source, to, weight }));
  return found;
}

/** Addresses of a slot of all nodes, as rows; null where the page does not have them. */
export function rowsOf(run, name, slot) {
  const array = run?.get(name);
  if (!array) return null;
  return Array.from({ length: array.shape[0] }, (_, node) => run.slice(name, node, slot));
}

/**
 * Values over the nodes and arrows for a mode other than "out". `in`: how much each node's edge
 * points at the source. `all`: the mean address of all nodes, and each one's heaviest target.
 */
export function pointing(rows, mode, source) {
  if (mode === "in") {
    const values = Float32Array.from(rows, (row) => row[source]);
    const least = leastOf(values.length);
    const arrows = [];
    values.forEach((weight, from) => weight >= least && arrows.push({ from, to: source, weight }));
    return { values, arrows };
  }
  const values = new Float32Array(rows.length);
  const arrows = [];
  rows.forEach((row, from) => {
    row.forEach((weight, to) => (values[to] += weight / rows.length));
    const weight = range(row)[1];
    if (weight >= LEAST_OF_ALL) arrows.push({ from, to: row.indexOf(weight), weight });
  });
  return { values, arrows };
}

/** Beside the title of a row of addresses: whose they are. */
export function modeText(mode, name) {
  return { in: `that point at ${name}`, all: "of all nodes" }[mode] ?? "";
}
