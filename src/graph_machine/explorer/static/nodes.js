// Graphs that are no board: nodes at places, links between them, and where a node's edges point.

import { prepare } from "./canvas.js";
import { colourOf } from "./colour.js";

const MARGIN = 0.08; // of the picture, around the outermost nodes
const LEAST_ARROW = 0.04; // weight that is worth an arrow, if it is at least twice the uniform one

/** Places in pixels and the radius of a node. */
function geometry(layout, width) {
  const inner = width * (1 - 2 * MARGIN);
  const at = layout.places.map(([x, y]) => [width * MARGIN + x * inner, width * MARGIN + y * inner]);
  return { at, radius: Math.max(2, layout.radius * inner) };
}

function disc(context, [x, y], radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
}

/** A line between two nodes, from rim to rim, with a head if there is room for one. */
function arrow(context, from, to, radius, width) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy);
  if (length <= 2 * radius) return;
  const [ux, uy] = [dx / length, dy / length];
  const end = [to[0] - ux * radius, to[1] - uy * radius];
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(from[0] + ux * radius, from[1] + uy * radius);
  context.lineTo(...end);
  context.stroke();
  const head = Math.min(radius, 2 * width + radius * 0.5);
  context.beginPath();
  context.moveTo(...end);
  context.lineTo(end[0] - ux * head - uy * head * 0.5, end[1] - uy * head + ux * head * 0.5);
  context.lineTo(end[0] - ux * head + uy * head * 0.5, end[1] - uy * head - ux * head * 0.5);
  context.fill();
}

function drawLinks(context, layout, at, radius, colours, ratio) {
  const there = new Set(layout.links.map(([from, to]) => `${from},${to}`));
  context.strokeStyle = context.fillStyle = colours.line;
  context.globalAlpha = 0.45;
  for (const [from, to] of layout.links) {
    const isBoth = there.has(`${to},${from}`);
    if (isBoth && from > to) continue; // drawn once, without a head
    if (!isBoth && radius > 4 * ratio) {
      arrow(context, at[from], at[to], radius, ratio);
      continue;
    }
    context.lineWidth = ratio;
    context.beginPath();
    context.moveTo(...at[from]);
    context.lineTo(...at[to]);
    context.stroke();
  }
  context.globalAlpha = 1;
}

function label(context, text, [x, y], size, colour, weight = 500) {
  context.fillStyle = colour;
  context.font = `${weight} ${Math.round(size)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, x, y + size * 0.05);
}

/** A word on top of all lines: they end in a margin of the background's colour. */
function word(context, text, [x, y], size, colour, back) {
  context.font = `500 ${Math.round(size)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = size * 0.35;
  context.strokeStyle = back;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** What stands beside nodes and links: numbers of nodes, and those that the example has. */
function drawWords(context, layout, at, radius, colours, ratio) {
  const size = Math.max(8 * ratio, Math.min(radius * 0.75, 13 * ratio));
  const { paper, ink, soft } = colours;
  layout.links.forEach(([from, to], i) => {
    const text = layout.linkValues?.[i];
    if (!text || (from > to && layout.links.some(([a, b]) => a === to && b === from))) return;
    const middle = [(at[from][0] + at[to][0]) / 2, (at[from][1] + at[to][1]) / 2];
    word(context, text, middle, size * 0.9, soft, paper);
  });
  const away = radius * 1.2 + 3 * ratio + size * 0.3; // outside the rings
  at.forEach(([x, y], node) => {
    word(context, String(node), [x + away * 0.8, y - away * 0.8], size, ink, paper);
    const text = layout.values?.[node];
    if (text) word(context, text, [x, y + radius * 1.2 + size * 0.75], size * 0.9, soft, paper);
  });
}

/** A second line inside the nodes that stand out in the example. */
function doubleMarked(context, layout, at, radius, colours, ratio) {
  context.lineWidth = Math.max(ratio, radius * 0.12);
  context.strokeStyle = colours.ink;
  for (const node of layout.marked ?? []) {
    for (const part of [0.78, 1]) {
      disc(context, at[node], radius * part);
      context.stroke();
    }
  }
}

function ring(context, place, radius, colours, ratio) {
  context.lineWidth = Math.max(1.5 * ratio, radius * 0.25);
  context.strokeStyle = colours.accent;
  disc(context, place, radius + context.lineWidth / 2);
  context.stroke();
}

/** A small open ring beside an answer: it was right once and was given up. */
export function markUndone(context, place, radius, colours, ratio) {
  context.lineWidth = Math.max(ratio, radius * 0.4);
  context.strokeStyle = colours.soft;
  disc(context, place, Math.max(1.5 * ratio, radius));
  context.stroke();
}

function sheet(canvas, layout, size, back) {
  const { context, width, ratio } = prepare(canvas, size, size);
  context.fillStyle = back;
  context.fillRect(0, 0, width, width);
  return { context, ratio, ...geometry(layout, width) };
}

/** Values over the nodes as colours, and arrows from the source to where its weight lies. */
export function drawWeights(canvas, layout, values, { size, low, high, mark, colours, texts, isWritten }) {
  const { context, ratio, at, radius } = sheet(canvas, layout, size, values ? colours.paper : colours.absent);
  if (!values) return;
  drawLinks(context, layout, at, radius, colours, ratio);
  const source = mark ?? null;
  if (source !== null && low === 0 && at[source]) {
    context.strokeStyle = context.fillStyle = colours.accent;
    const least = Math.max(LEAST_ARROW, 2 / layout.cells);
    for (let node = 0; node < layout.cells; node++) {
      if (node === source || values[node] < least) continue;
      context.globalAlpha = Math.min(1, 0.25 + values[node]);
      arrow(context, at[source], at[node], radius, Math.max(ratio, values[node] * radius * 0.8));
    }
    context.globalAlpha = 1;
  }
  for (let node = 0; node < layout.cells; node++) {
    context.fillStyle = colourOf(colours.map, values[node], low, high);
    disc(context, at[node], radius);
    context.fill();
    context.lineWidth = Math.max(1, ratio / 2);
    context.strokeStyle = colours.line;
    context.stroke();
    if (isWritten && texts?.[node]?.text && radius >= 6 * ratio) {
      const part = high > low ? (values[node] - low) / (high - low) : 0;
      const isLight = colours.isDark ? part > 0.55 : part < 0.52;
      label(context, texts[node].text, at[node], radius * 0.95, isLight ? "#111" : "#fff");
    }
  }
  doubleMarked(context, layout, at, radius, colours, ratio);
  if (source !== null && at[source]) ring(context, at[source], radius, colours, ratio);
  if (isWritten && radius >= 5 * ratio) drawWords(context, layout, at, radius, colours, ratio);
}

/** The example: its nodes with their answers, numbered; wrong ones and the source are marked. */
export function drawNodes(canvas, layout, nodes, { size, mark, colours }) {
  const { context, ratio, at, radius } = sheet(canvas, layout, size, colours.paper);
  drawLinks(context, layout, at, radius, colours, ratio);
  nodes.forEach(({ text, isGiven, isWrong, isUndone, confidence }, node) => {
    disc(context, at[node], radius);
    context.fillStyle = isWrong ? colours.wrongBack : colours.paper;
    context.fill();
    context.lineWidth = isWrong ? 2 * ratio : ratio;
    context.strokeStyle = isWrong ? colours.wrong : colours.line;
    context.stroke();
    const ink = isGiven ? colours.ink : isWrong ? colours.wrong : colours.predicted;
    if (radius >= 5 * ratio) label(context, text, at[node], radius * (text.length > 2 ? 0.75 : 0.95), ink, isGiven ? 650 : 450);
    if (!isGiven && confidence !== null && radius >= 5 * ratio) {
      context.strokeStyle = ink;
      context.lineWidth = 1.5 * ratio;
      context.beginPath();
      context.arc(at[node][0], at[node][1], radius + 2 * ratio, -Math.PI / 2, (confidence - 0.25) * 2 * Math.PI);
      context.stroke();
    }
    if (isUndone) {
      const [x, y] = at[node];
      markUndone(context, [x - radius * 1.05, y - radius * 1.05], radius * 0.25, colours, ratio);
    }
  });
  doubleMarked(context, layout, at, radius, colours, ratio);
  if (at[mark]) ring(context, at[mark], radius + 2 * ratio, colours, ratio);
  if (radius >= 5 * ratio) drawWords(context, layout, at, radius, colours, ratio);
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
