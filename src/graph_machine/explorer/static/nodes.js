// Graphs that are no board: nodes at places, links between them, and where a node's edges point.

import { BEND, drawArrow, drawLoop } from "./arrows.js";
import { prepare } from "./canvas.js";
import { colourOf } from "./colour.js";
import { arrowsFrom } from "./pointing.js";
import { freeRoom } from "./sides.js";

const MARGIN = 0.08; // of the picture, around the outermost nodes
const ROOM_INSIDE = 6.5; // pixels of a radius from which on a number stands in the node
const ROOM_BESIDE = 4; // and beside it; smaller nodes have none
const MOST_BESIDE = 40; // nodes whose numbers can stand beside them,
const LEAST_BESIDE = 200; // and pixels of such a picture

/** Places in pixels and the radius of a node. */
function geometry(layout, width) {
  const inner = width * (1 - 2 * MARGIN);
  const place = ([x, y]) => [width * MARGIN + x * inner, width * MARGIN + y * inner];
  return { place, at: layout.places.map(place), radius: Math.max(2, layout.radius * inner) };
}

function disc(context, [x, y], radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
}

/** Everything that the parts of a drawing need. */
function sheet(canvas, layout, { size, colours }, back) {
  const { context, width, ratio } = prepare(canvas, size, size);
  context.fillStyle = back;
  context.fillRect(0, 0, width, width);
  return { context, ratio, colours, layout, width, ...freeRoom(layout), ...geometry(layout, width) };
}

/** Input edges. A pair of them is one line without a head; those of a hovered node are dark. */
function drawLinks({ context, layout, at, radius, colours, ratio, sides }, hovered) {
  const there = new Set(layout.links.map(([from, to]) => `${from},${to}`));
  for (const [from, to] of layout.links) {
    const isBoth = from !== to && there.has(`${to},${from}`);
    if (isBoth && from > to) continue;
    const isNear = hovered !== null && (from === hovered || to === hovered);
    context.strokeStyle = context.fillStyle = isNear ? colours.ink : colours.link;
    const width = isNear ? 2 * ratio : Math.min(1.25 * ratio, Math.max(0.75 * ratio, radius * 0.3));
    if (from === to) drawLoop(context, at[from], sides[from], { radius, width, ratio });
    else drawArrow(context, at[from], at[to], { radius, width, ratio, hasHead: !isBoth });
  }
}

/** The model's edges: the wider and darker, the more weight. */
function drawArrows({ context, at, radius, ratio, sides }, arrows, colour, hovered) {
  context.strokeStyle = context.fillStyle = colour;
  for (const { from, to, weight } of arrows) {
    if (!at[from] || !at[to]) continue;
    const isAside = hovered !== null && from !== hovered && to !== hovered;
    context.globalAlpha = Math.min(1, 0.35 + 0.65 * weight) * (isAside ? 0.2 : 1);
    const width = Math.max(ratio, weight * Math.min(radius * 0.7, 3.5 * ratio));
    if (from === to) drawLoop(context, at[from], sides[from], { radius, width, ratio });
    else drawArrow(context, at[from], at[to], { radius, width, ratio, bend: BEND });
  }
  context.globalAlpha = 1;
}

function label(context, text, [x, y], size, colour, weight = 500) {
  context.fillStyle = colour;
  context.font = `${weight} ${Math.round(size)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, x, y + size * 0.06);
}

/** A word on top of all lines: they end in a margin of the background's colour. */
function word({ context, colours }, text, [x, y], size, colour) {
  context.font = `500 ${Math.round(size)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = size * 0.35;
  context.strokeStyle = colours.paper;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** A word on the free side of a node, or on the other one. */
function beside(drawing, node, text, size, colour, isOther = false) {
  const { context, at, radius, ratio, sides, width } = drawing;
  const angle = sides[node] + (isOther ? Math.PI : 0);
  context.font = `500 ${Math.round(size)}px system-ui, sans-serif`;
  const half = context.measureText(text).width / 2;
  const away = radius + 3 * ratio;
  const inside = (x, room) => Math.min(width - room, Math.max(room, x));
  const x = inside(at[node][0] + Math.cos(angle) * (away + half), half + ratio);
  const y = inside(at[node][1] + Math.sin(angle) * (away + size * 0.5), size * 0.5);
  word(drawing, text, [x, y], size, colour);
}

/** Numbers of nodes where there is room: in them (in `inkOf` of a node) or beside them. */
function drawNumbers(drawing, inkOf) {
  const { context, layout, at, radius, ratio, colours, width } = drawing;
  const isInside = radius >= ROOM_INSIDE * ratio;
  const isBeside = radius >= ROOM_BESIDE * ratio && layout.cells <= MOST_BESIDE && width >= LEAST_BESIDE * ratio;
  if (!isInside && !isBeside) return;
  const digits = String(layout.cells - 1).length;
  const size = Math.min(radius * (digits > 2 ? 0.85 : digits > 1 ? 1.1 : 1.25), 14 * ratio);
  at.forEach((place, node) => {
    if (isInside) label(context, String(node), place, size, inkOf(node), 560);
    else beside(drawing, node, String(node), 8.5 * ratio, colours.soft);
  });
}

/** `answers` ({text, ink}) beside nodes, and what the example says of nodes and links if `isTold`. */
function drawWords(drawing, answers, isTold) {
  const { layout, at, radius, ratio, colours, spots, place } = drawing;
  if (radius < ROOM_INSIDE * ratio) return;
  const size = Math.max(9 * ratio, Math.min(radius * 0.85, 13 * ratio));
  layout.links.forEach(([from, to], i) => {
    const text = isTold && layout.linkValues?.[i];
    if (!text || (from > to && layout.links.some(([a, b]) => a === to && b === from))) return;
    word(drawing, text, place(spots[i]), size * 0.9, colours.soft);
  });
  at.forEach((_, node) => {
    const told = isTold && layout.values?.[node];
    if (answers[node]?.text) beside(drawing, node, answers[node].text, size, answers[node].ink);
    if (told) beside(drawing, node, told, size * 0.9, colours.soft, Boolean(answers[node]?.text));
  });
}

/** A second line inside the nodes that stand out in the example. */
function doubleMarked({ context, layout, at, radius, colours, ratio }) {
  context.lineWidth = Math.max(ratio, radius * 0.1);
  context.strokeStyle = colours.ink;
  for (const node of layout.marked ?? []) {
    for (const part of [0.8, 1.02]) {
      disc(context, at[node], radius * part);
      context.stroke();
    }
  }
}

function ring({ context, at, radius, ratio }, node, colour) {
  if (!at[node]) return;
  context.lineWidth = Math.max(1.75 * ratio, radius * 0.22);
  context.strokeStyle = colour;
  disc(context, at[node], radius + context.lineWidth / 2 + ratio / 2);
  context.stroke();
}

/** A small open ring beside an answer: it was right once and was given up. */
export function markUndone(context, place, radius, colours, ratio) {
  context.lineWidth = Math.max(ratio, radius * 0.4);
  context.strokeStyle = colours.soft;
  disc(context, place, Math.max(1.5 * ratio, radius));
  context.stroke();
}

// How each canvas was drawn last, so that the node under the pointer can be shown at once.
const drawn = new WeakMap();
let pointed = null;

/** Show a node of a canvas, its links and its arrows; null: none. One canvas has a node at a time. */
export function hoverNode(canvas, node) {
  if (pointed && pointed !== canvas) drawn.get(pointed)?.(null);
  pointed = canvas;
  const again = canvas && drawn.get(canvas);
  if (again && again.node !== node) again(node);
}

function remember(canvas, node, draw) {
  draw.node = node;
  drawn.set(canvas, draw);
}

/** Values over the nodes as colours, and the arrows that belong to them. */
export function drawWeights(canvas, layout, values, options, hovered = null) {
  const { low, high, mark, colours, texts, isWritten } = options;
  remember(canvas, hovered, (node) => drawWeights(canvas, layout, values, options, node));
  const drawing = sheet(canvas, layout, options, values ? colours.paper : colours.absent);
  if (!values) return;
  const { context, ratio, at, radius } = drawing;
  drawLinks(drawing, hovered);
  const hasSource = mark !== null && mark !== undefined;
  // Arrows are of weights: raw scores begin below or above 0.
  const own = hasSource && low === 0 ? arrowsFrom(mark, values) : [];
  drawArrows(drawing, options.arrows ?? own, colours.accent, hovered);
  const partOf = (node) => (high > low ? (values[node] - low) / (high - low) : 0);
  for (let node = 0; node < layout.cells; node++) {
    context.fillStyle = colourOf(colours.map, values[node], low, high);
    disc(context, at[node], radius);
    context.fill();
    context.lineWidth = Math.max(1, ratio);
    context.strokeStyle = colours.rim;
    context.stroke();
  }
  doubleMarked(drawing);
  if (hovered !== null) ring(drawing, hovered, colours.ink);
  if (hasSource) ring(drawing, mark, colours.accent);
  drawNumbers(drawing, (node) => ((colours.isDark ? partOf(node) > 0.55 : partOf(node) < 0.52) ? "#111" : "#fff"));
  if (isWritten) drawWords(drawing, (texts ?? []).map(({ text }) => ({ text, ink: colours.predicted })), false);
}

/** The node that an answer such as `→7` points at, or null. */
function answerTarget(text) {
  const match = /^→(\d+)$/.exec(text ?? "");
  return match ? Number(match[1]) : null;
}

/** The example: its nodes, their answers; wrong ones and the source are marked. */
export function drawNodes(canvas, layout, nodes, options, hovered = null) {
  const { mark, colours } = options;
  remember(canvas, hovered, (node) => drawNodes(canvas, layout, nodes, options, node));
  const drawing = sheet(canvas, layout, options, colours.paper);
  const { context, ratio, at, radius } = drawing;
  drawLinks(drawing, hovered);
  const inks = nodes.map(({ isGiven, isWrong }) =>
    (isGiven ? colours.ink : isWrong ? colours.wrong : colours.predicted));
  for (const node of hovered === null ? [mark] : [hovered]) {
    const to = answerTarget(nodes[node]?.text);
    if (to !== null) drawArrows(drawing, [{ from: node, to, weight: 0.6 }], inks[node], null);
  }
  nodes.forEach(({ isWrong, isUndone, isGiven, confidence }, node) => {
    disc(context, at[node], radius);
    context.fillStyle = isWrong ? colours.wrongBack : colours.paper;
    context.fill();
    context.lineWidth = ratio;
    context.strokeStyle = colours.rim;
    context.stroke();
    if (!isGiven && confidence !== null) {
      context.strokeStyle = inks[node];
      context.lineWidth = Math.max(1.5 * ratio, Math.min(radius * 0.2, 2.5 * ratio));
      context.beginPath();
      context.arc(...at[node], radius, -Math.PI / 2, (confidence - 0.25) * 2 * Math.PI);
      context.stroke();
    }
    if (isUndone) {
      const [x, y] = at[node];
      markUndone(context, [x - radius * 1.05, y - radius * 1.05], radius * 0.25, colours, ratio);
    }
  });
  doubleMarked(drawing);
  if (hovered !== null) ring(drawing, hovered, colours.ink);
  ring(drawing, mark, colours.accent);
  drawNumbers(drawing, (node) => (nodes[node].isWrong ? colours.wrong : colours.ink));
  drawWords(drawing, nodes.map(({ text }, node) => ({ text, ink: inks[node] })), true);
}

/** The node nearest to a point of the unit square, if it is near. */
export function nodeAt(layout, x, y) {
  const inner = 1 - 2 * MARGIN;
  let [best, least] = [null, Math.max(0.06, 0.5 / Math.sqrt(layout.cells)) ** 2];
  layout.places.forEach(([px, py], node) => {
    const far = (MARGIN + px * inner - x) ** 2 + (MARGIN + py * inner - y) ** 2;
    if (far < least) [best, least] = [node, far];
  });
  return best;
}

/** The nearest node in the direction of an arrow key; the same one if there is none. */
export function stepNode(layout, node, [down, right]) {
  const [x, y] = layout.places[node];
  let [best, least] = [node, Infinity];
  layout.places.forEach(([px, py], other) => {
    const along = (px - x) * right + (py - y) * down;
    const aside = Math.abs((px - x) * down) + Math.abs((py - y) * right);
    if (along > 1e-6 && along + 2 * aside < least) [best, least] = [other, along + 2 * aside];
  });
  return best;
}
