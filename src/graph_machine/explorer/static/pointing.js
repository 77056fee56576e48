// Whose edges a picture of addresses shows: those of the source, those that point at it, or all.

import { range } from "./quantities.js";

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

/** Addresses of a slot of all nodes, as rows; null where the page was not told them. */
function rowsOf(run, name, slot) {
  const array = run?.get(name);
  if (!array) return null;
  return Array.from({ length: array.shape[0] }, (_, node) => run.slice(name, node, slot));
}

/**
 * Values over the nodes and arrows for a mode other than "out". `in`: how much each node's edge
 * points at the source. `all`: the mean address of all nodes, and each one's heaviest target.
 */
export function pointing(run, name, slot, mode, source) {
  const rows = rowsOf(run, name, slot);
  if (!rows) return null;
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
