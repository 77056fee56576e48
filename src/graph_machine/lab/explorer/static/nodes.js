// Graphs that are not boards: nodes at places, links between them, and arrows where edges point.

import { colourOf, prepare } from "./canvas.js";
import { arrowsFrom } from "./quantities.js";

const BEND = 0.16; // of an arrow's length, to its left

/** Lengths of a head that is seen on a small board, too, and does not fill a short arrow. */
function headOf(length, radius, width, ratio) {
  return Math.min(0.45 * length, Math.max(3.5 * ratio, 2.2 * width, 0.6 * radius));
}

function head(context, [x, y], [ux, uy], size) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - ux * size - uy * size * 0.45, y - uy * size + ux * size * 0.45);
  context.lineTo(x - ux * size + uy * size * 0.45, y - uy * size - ux * size * 0.45);
  context.fill();
}

const towards = ([x, y], [a, b]) => {
  const length = Math.hypot(a - x, b - y) || 1;
  return [(a - x) / length, (b - y) / length];
};

/** From rim to rim of two nodes. Stroke and fill styles are the caller's. */
function drawArrow(context, from, to, { radius, width, ratio, bend = 0, hasHead = true }) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const room = Math.hypot(dx, dy) - 2 * radius;
  if (room <= 0) return;
  const middle = [(from[0] + to[0]) / 2 + bend * dy, (from[1] + to[1]) / 2 - bend * dx];
  const [out, back] = [towards(from, middle), towards(to, middle)];
  const start = [from[0] + out[0] * radius, from[1] + out[1] * radius];
  const end = [to[0] + back[0] * radius, to[1] + back[1] * radius];
  const size = hasHead ? headOf(room, radius, width, ratio) : 0;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(...start);
  // The line ends inside the head: a wide one would stick out of its tip.
  context.quadraticCurveTo(...middle, end[0] + back[0] * size * 0.7, end[1] + back[1] * size * 0.7);
  context.stroke();
  if (hasHead) head(context, end, [-back[0], -back[1]], size);
}

/** From a node back to itself, on the side of an angle. */
function drawLoop(context, [x, y], angle, { radius, width, ratio }) {
  const size = headOf(2 * radius, radius, width, ratio);
  const round = Math.max(0.75 * radius, 2.5 * ratio);
  const away = radius + 0.55 * round;
  const [cx, cy] = [x + Math.cos(angle) * away, y + Math.sin(angle) * away];
  const open = 2.1; // half of the arc, from its far end to where it meets the node
  context.lineWidth = width;
  context.beginPath();
  context.arc(cx, cy, round, angle - open, angle + open - size / round / 2);
  context.stroke();
  const last = angle + open;
  const tip = [cx + Math.cos(last) * round, cy + Math.sin(last) * round];
  const turn = last + Math.PI / 2 - size / round / 2;
  head(context, tip, [Math.cos(turn), Math.sin(turn)], size);
}

const ANGLES = Array.from({ length: 16 }, (_, i) => (i * Math.PI) / 8 - Math.PI / 2);
const TURNS = Array.from({ length: 16 }, (_, i) => ((i % 2 ? 1 : -1) * Math.ceil(i / 2) * Math.PI) / 8);
const AWAY = 2.4; // radii from a node to the word beside it
const EDGE_ROOM = 0.09; // around the unit square, for words
const PARTS = [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73]; // of a link, for the word upon it
const known = new WeakMap();

function toSegment(x, y, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const part = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1);
  const cut = Math.min(1, Math.max(0, part));
  return Math.hypot(x - ax - cut * dx, y - ay - cut * dy);
}

/** {sides, spots} of a layout: an angle per node and a place per link, made once. */
function freeRoom(layout) {
  if (!known.has(layout)) known.set(layout, { sides: sidesOf(layout), spots: spotsOf(layout) });
  return known.get(layout);
}

/** The point of every link that is farthest from nodes and from the points before it. */
function spotsOf({ places, links, linkValues }) {
  const taken = [];
  return (linkValues ? links : []).map(([from, to]) => {
    let [best, most] = [null, -1];
    for (const part of PARTS) {
      const at = [0, 1].map((axis) => places[from][axis] * (1 - part) + places[to][axis] * part);
      const room = Math.min(...[...places, ...taken].map(([x, y]) => Math.hypot(x - at[0], y - at[1])));
      if (room > most * 1.1) [best, most] = [at, room];
    }
    if (from < to || !links.some(([a, b]) => a === to && b === from)) taken.push(best);
    return best;
  });
}

/** The direction from every node to the point beside it that is farthest from nodes and links. */
function sidesOf(layout) {
  const { places, links, radius } = layout;
  const lines = links.filter(([from, to]) => from !== to).map(([from, to]) => [places[from], places[to]]);
  return places.map(([x, y], node) => {
    let [best, most] = [0, -Infinity];
    for (const angle of ANGLES) {
      const [px, py] = [x + Math.cos(angle) * AWAY * radius, y + Math.sin(angle) * AWAY * radius];
      // More than 3 radii make no difference: then the first direction, up, is taken.
      let room = Math.min(3 * radius, ...[px, py].map((p) => Math.min(p + EDGE_ROOM, 1 + EDGE_ROOM - p)));
      places.forEach(([ox, oy], other) => {
        if (other !== node) room = Math.min(room, Math.hypot(px - ox, py - oy) - radius);
      });
      for (const [from, to] of lines) room = Math.min(room, toSegment(px, py, from, to));
      if (room > most + 1e-9) [best, most] = [angle, room];
    }
    return best;
  });
}

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
  return { context, ratio, colours, layout, width, words: [], overlaps: 0, ...freeRoom(layout), ...geometry(layout, width) };
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
function drawArrows({ context, at, radius, ratio, sides, colours }, arrows, colour, hovered) {
  for (const { from, to, weight, kind } of arrows) {
    if (!at[from] || !at[to]) continue;
    context.strokeStyle = context.fillStyle = colours[kind] ?? colour;
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

/** How far a box (centre, half width, half height) is from a point; 0 inside. */
const toBox = ([x, y, w, h], [px, py]) => Math.hypot(Math.max(0, Math.abs(px - x) - w), Math.max(0, Math.abs(py - y) - h));

/** What a word in a box would cover: nodes count most, then other words, then links and the margin. */
function covered({ layout, at, radius, ratio, width, words }, box) {
  const [x, y, w, h] = box;
  let bad = 0;
  for (const place of at) if (toBox(box, place) < radius + ratio) bad += 100;
  for (const [ox, oy, ow, oh] of words) if (Math.abs(x - ox) < w + ow && Math.abs(y - oy) < h + oh) bad += 30;
  if (x - w < 0 || y - h < 0 || x + w > width || y + h > width) bad += 60;
  for (const [from, to] of layout.links) if (from !== to && toSegment(x, y, at[from], at[to]) < h) bad += 1;
  return bad;
}

/** A word beside a node, where it covers least; as near to its free side as that allows. */
function beside(drawing, node, text, size, colour) {
  const { context, at: { [node]: [nx, ny] }, radius, ratio, sides, words } = drawing;
  let [best, least] = [null, Infinity];
  for (const scale of [1, 0.85]) {
    context.font = `500 ${Math.round(size * scale)}px system-ui, sans-serif`;
    const [w, h] = [context.measureText(text).width / 2 + ratio, size * scale * 0.5];
    for (const extra of [0, 0.6, 1.2]) {
      for (const turn of TURNS) {
        const angle = sides[node] + turn;
        const away = radius + (2 + extra * radius / ratio) * ratio;
        const box = [nx + Math.cos(angle) * (away + w), ny + Math.sin(angle) * (away + h), w, h];
        const bad = covered(drawing, box) + Math.abs(turn) / 10 + extra + (scale < 1 ? 20 : 0);
        if (bad < least) [best, least] = [{ box, size: size * scale }, bad];
      }
    }
    if (least < 20) break;
  }
  if (least >= 100) drawing.overlaps += 1;
  words.push(best.box);
  word(drawing, text, best.box, best.size, colour);
}

/** Numbers of nodes where there is room: in them (in `inkOf` of a node) or beside them. */
function drawNumbers(drawing, inkOf) {
  const { context, layout, at, radius, ratio, colours, width } = drawing;
  const isInside = radius >= ROOM_INSIDE * ratio;
  const isBeside = radius >= ROOM_BESIDE * ratio && layout.nodes <= MOST_BESIDE && width >= LEAST_BESIDE * ratio;
  if (!isInside && !isBeside) return;
  const digits = String(layout.nodes - 1).length;
  const size = Math.min(radius * (digits > 2 ? 0.85 : digits > 1 ? 1.1 : 1.25), 14 * ratio);
  at.forEach((place, node) => {
    if (isInside) label(context, String(node), place, size, inkOf(node), 560);
    else beside(drawing, node, String(node), 8.5 * ratio, colours.soft);
  });
}

/** `answers` ({text, ink}) beside nodes, and what the example says of nodes and links if `withValues`. */
function drawWords(drawing, answers, withValues) {
  const { layout, at, radius, ratio, colours, spots, place } = drawing;
  if (radius < ROOM_INSIDE * ratio) return;
  const size = Math.max(9 * ratio, Math.min(radius * 0.85, 13 * ratio));
  layout.links.forEach(([from, to], i) => {
    const text = withValues && layout.linkValues?.[i];
    if (!text || (from > to && layout.links.some(([a, b]) => a === to && b === from))) return;
    word(drawing, text, place(spots[i]), size * 0.9, colours.soft);
  });
  at.forEach((_, node) => {
    const carried = withValues && layout.values?.[node];
    if (answers[node]?.text) beside(drawing, node, answers[node].text, size, answers[node].ink);
    if (carried) beside(drawing, node, carried, size * 0.9, colours.soft);
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
  for (let node = 0; node < layout.nodes; node++) {
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
  canvas.dataset.overlaps = String(drawing.overlaps); // words that lie on a node, for the tests
}

/** The node nearest to a point of the unit square, if it is near. */
export function nodeAt(layout, x, y) {
  const inner = 1 - 2 * MARGIN;
  let [best, least] = [null, Math.max(0.06, 0.5 / Math.sqrt(layout.nodes)) ** 2];
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
