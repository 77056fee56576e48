// Edges by their slot in e1 and e2 weights: first those that referral made, then given ones (the
// edges of the input graph) and an empty one, which stay the same in every layer.

import { cellName } from "./board.js";
import { make } from "./dom.js";
import { argmax } from "./quantities.js";

const STEPS = new Map([["0,0", "self"], ["-1,0", "up"], ["1,0", "down"], ["0,-1", "left"], ["0,1", "right"]]);

/** A target as seen from a cell: a step on the grid, or its name. */
function wayTo(layout, cell, target) {
  if (target === cell) return "self";
  if (layout.kind === "nodes" || layout.isSequence) return cellName(layout, target);
  const rows = Math.floor(target / layout.cols) - Math.floor(cell / layout.cols);
  const cols = (target % layout.cols) - (cell % layout.cols);
  return STEPS.get(`${rows},${cols}`) ?? cellName(layout, target);
}

/** What kind of input edge an address is: one to a target, or empty (spread over all cells). */
export function inputEdgeName(layout, cell, address) {
  const target = argmax(address);
  if (address[target] < 0.5) return "empty slot";
  const way = wayTo(layout, cell, target);
  return way === cellName(layout, target) ? `to ${way}` : way;
}

/** The edges that a sublayer sees of a node. */
export class NodeEdges {
  /** `slots` of e1 or e2 weights; `edges` are those that stay, from the header of a run, or null. */
  constructor(layout, edges, cell, isCausal, slots) {
    Object.assign(this, { layout, cell, isCausal });
    this.targets = edges?.targets[cell] ?? [];
    this.types = edges?.types?.[cell] ?? null;
    this.made = slots - this.targets.length - Number(edges?.hasEmpty ?? false); // none before the first referral
  }

  /** {kind, name} of a slot; null where the node has no such edge. */
  at(slot) {
    const place = slot - this.made;
    if (place < 0) return { kind: "made", name: `e${slot}` };
    if (place >= this.targets.length) return { kind: "empty", name: "empty" };
    if (this.targets[place] < 0) return null;
    const type = this.types && this.targets[place] !== this.cell ? ` (type ${this.types[place]})` : "";
    return { kind: "given", name: `given ${wayTo(this.layout, this.cell, this.targets[place])}${type}` };
  }

  /** Where given edges point, evenly, or the one in a slot; or the empty edge. */
  address(kind, slot = null) {
    const values = new Float32Array(this.layout.nodes);
    const all = slot === null ? this.targets.filter((target) => target >= 0) : [this.targets[slot - this.made]];
    const seen = this.isCausal ? this.cell + 1 : values.length;
    if (kind === "empty") values.fill(1 / seen, 0, seen);
    else for (const target of all) values[target] += 1 / all.length;
    return values;
  }

  /** The names of all given edges. */
  get given() {
    return this.targets.map((_, place) => this.at(this.made + place)?.name.replace("given ", "")).filter(Boolean);
  }
}

/** The legend of the kinds. */
export function kindsKey() {
  return make("p", { class: "kinds" }, ...["made", "given", "empty"].map((kind) =>
    make("span", {}, make("i", { class: `kind kind-${kind}` }), kind)));
}
