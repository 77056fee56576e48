// Boards on canvas: values as colours, lines between regions, the source, characters and marks.

import { colourOf, prepare } from "./canvas.js";
import { make } from "./dom.js";
import { drawNodes, drawWeights, markUndone, nodeAt } from "./nodes.js";

const MANY_COLUMNS = 12; // of a board: with more, boards are drawn larger
const MANY_NODES = 12; // of a graph, likewise

/** Whether an example needs much room. */
export function isCrowded({ kind, cols, nodes }) {
  return kind === "nodes" ? nodes > MANY_NODES : cols > MANY_COLUMNS;
}

const LEAST_LETTER = 9; // pixels: the few letters beside marks may be larger than a small cell

const LEAST_DOTTED = 3; // pixels of a cell that shows a dot and its colour

/** A mark of the example's own board; `sure` is the confidence of an answer, or null. */
function drawMark(context, drawn, [x, y, w, h], sure, colours, ink) {
  if (drawn === "filled") {
    context.fillStyle = colours.solid;
    context.fillRect(x, y, w, h);
  } else if (drawn === "dot") {
    context.fillStyle = ink;
    context.globalAlpha = 0.08 + 0.3 * (sure ?? 1); // the surer, the darker
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
    spot(context, x + w / 2, y + h / 2, w * 0.22);
  }
}

/** A mark on a board of weights. A solid cell gives way to the colour of a weight upon it. */
function overlayMark(context, drawn, [x, y, w, h], part, colours) {
  if (drawn === "filled") {
    context.globalAlpha = Math.max(0, 0.6 - part);
    context.fillStyle = colours.solid;
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
  } else if (drawn === "dot" && w >= LEAST_DOTTED) {
    context.fillStyle = part > 0.5 ? colours.paper : colours.predicted;
    spot(context, x + w / 2, y + h / 2, w * 0.22);
  }
}

function spot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, Math.max(0.8, radius), 0, 2 * Math.PI);
  context.fill();
}

/** Pixels of a character: part of its cell, but readable where the rest of the board is drawn. */
function letterSize(cell, part, ratio, hasMarks) {
  return Math.round(hasMarks ? Math.max(cell * part, LEAST_LETTER * ratio) : cell * part);
}

/** The key below the example: what is drawn how, in the words of the task. */
export function fillKey(element, session) {
  const names = session.answerNames;
  const sample = names ? names[Math.min(4, names.length - 1)] : "5";
  const sign = (name, text = "") => make("b", { class: `key-${name}` }, text);
  const entry = (mark, text, id = null) => make("span", { id }, mark, text);
  const drawn = Object.values(session.marks).filter((mark) => mark.drawn !== "empty");
  const isNodes = session.layout.kind === "nodes";
  const links = isNodes ? [entry(sign("link"), session.models.some(({ stays }) => stays.includes("given")) ? "given edge" : "input edge"), entry(sign("edge"), "weight: the wider, the more")] : [];
  const plain = [
    entry(sign("given", sample), "given", "key-given-entry"),
    entry(sign(isNodes ? "ringed" : "predicted", sample), `predicted, ${isNodes ? "ring" : "bar"} = confidence`),
  ];
  if (session.layout.marked?.length) plain.push(entry(sign("marked"), "stands out in the example"));
  const undone = entry(sign("undone"), "was right, then undone", "key-undone");
  element.replaceChildren(
    ...(drawn.length ? drawn.map((mark) => entry(sign(mark.drawn), mark.drawn === "dot"
      ? `predicted: ${mark.word}; darker = surer` : mark.word)) : plain),
    entry(sign("wrong", drawn.length ? "" : sample), "wrong"), undone, ...links);
}

/** Whether places have a number alone: nodes of a graph, or of a sequence that is drawn in lines. */
const isNumbered = (layout) => layout.kind === "nodes" || Boolean(layout.isSequence);

/** `r2c5`: cells of a board count from 1 (records/naming.py says why), nodes and all else from 0. */
export function cellName(layout, cell) {
  if (isNumbered(layout)) return `n${cell}`;
  return `r${Math.floor(cell / layout.cols) + 1}c${(cell % layout.cols) + 1}`;
}

/** The cell or node that a name stands for, or null. */
export function cellOf(layout, name) {
  const node = /^n(\d{1,6})$/.exec(name);
  if (isNumbered(layout) && node) return Number(node[1]); // examples differ in size: cut later
  const match = /^r(\d+)c(\d+)$/.exec(name);
  if (!match || isNumbered(layout)) return null;
  const [row, col] = [Number(match[1]) - 1, Number(match[2]) - 1];
  const cell = row * layout.cols + col;
  const isInside = row >= 0 && col >= 0 && row < layout.rows && col < layout.cols;
  return isInside && cell < layout.nodes ? cell : null;
}

/** Edges of the cells in device pixels: whole numbers, so that no seams show. */
function edges(count, size) {
  return Array.from({ length: count + 1 }, (_, i) => Math.round((i * size) / count));
}

/** Lines between cells; those between two regions, and around the board, are strong. */
function drawLines(context, layout, xs, ys, colours, ratio) {
  const line = Math.max(1, Math.round(ratio));
  const isFine = xs[1] - xs[0] >= 12 * ratio;
  const { rows, cols, regions } = layout;
  const [right, bottom] = [xs[cols] - line, ys[rows] - line];
  const between = (one, other) => Boolean(regions) && regions[one] !== regions[other];
  for (const strong of isFine ? [false, true] : [true]) {
    context.fillStyle = strong ? colours.line : colours.faint;
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const cell = row * cols + col;
        if (col && between(cell - 1, cell) === strong) {
          context.fillRect(Math.min(xs[col], right), ys[row], line, ys[row + 1] - ys[row]);
        }
        if (row && between(cell - cols, cell) === strong) {
          context.fillRect(xs[col], Math.min(ys[row], bottom), xs[col + 1] - xs[col], line);
        }
      }
    }
  }
  context.fillStyle = colours.line;
  for (const [x, y, w, h] of [[0, 0, line, ys[rows]], [right, 0, line, ys[rows]], [0, 0, xs[cols], line],
    [0, bottom, xs[cols], line]]) context.fillRect(x, y, w, h);
}

/** Outline one cell so that it shows on every colour of the map. */
function outline(context, xs, ys, layout, cell, colours, ratio) {
  const [col, row] = [cell % layout.cols, Math.floor(cell / layout.cols)];
  const [x, y] = [xs[col], ys[row]];
  const [w, h] = [xs[col + 1] - x, ys[row + 1] - y];
  const isSmall = w < 16 * ratio;
  const width = isSmall ? 1.5 * ratio : Math.min(w * 0.1, 3.5 * ratio);
  // Around a small cell, so that its colour stays visible; inside a large one.
  const inset = isSmall ? -width / 2 : width / 2;
  context.lineWidth = width;
  context.strokeStyle = colours.accent;
  context.strokeRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
}

/**
 * Draw values over the cells. `values` of null draws an absent board. Of `texts`, marks are drawn;
 * the others are written into the cells where they fit, if `isWritten`.
 */
export function drawBoard(canvas, layout, values, options) {
  if (layout.kind === "nodes") return drawWeights(canvas, layout, values, options);
  const { size, low, high, mark, colours, texts, isWritten } = options;
  const { context, width, height, ratio } = prepare(canvas, size, (size * layout.rows) / layout.cols);
  const [xs, ys] = [edges(layout.cols, width), edges(layout.rows, height)];
  context.fillStyle = values ? colours.paper : colours.absent;
  context.fillRect(0, 0, width, height);
  if (!values) return;
  for (let cell = 0; cell < layout.nodes; cell++) {
    const [col, row] = [cell % layout.cols, Math.floor(cell / layout.cols)];
    context.fillStyle = colourOf(colours.map, values[cell], low, high);
    const box = [xs[col], ys[row], xs[col + 1] - xs[col], ys[row + 1] - ys[row]];
    context.fillRect(...box);
    if (texts?.[cell]?.mark) {
      const part = high > low ? (values[cell] - low) / (high - low) : 0;
      overlayMark(context, texts[cell].mark, box, part, colours);
    }
  }
  drawLines(context, layout, xs, ys, colours, ratio);
  const hasMarks = Boolean(texts?.some((text) => text.mark));
  if (texts && isWritten && (hasMarks || xs[1] - xs[0] >= 8 * ratio)) {
    writeTexts(context, layout, xs, ys, texts, values, { ...options, ratio, hasMarks });
  }
  if (mark !== null && mark !== undefined) outline(context, xs, ys, layout, mark, colours, ratio);
}

function writeTexts(context, layout, xs, ys, texts, values, { low, high, colours, ratio, hasMarks }) {
  const cell = xs[1] - xs[0];
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let i = 0; i < layout.nodes; i++) {
    if (!texts[i]?.text || texts[i].mark) continue;
    const [col, row] = [i % layout.cols, Math.floor(i / layout.cols)];
    const part = high > low ? (values[i] - low) / (high - low) : 0;
    const isLight = colours.isDark ? part > 0.55 : part < 0.52;
    context.fillStyle = isLight ? "#111" : "#fff";
    const size = letterSize(cell, texts[i].text.length > 1 ? 0.45 : 0.6, ratio, hasMarks);
    context.font = `${texts[i].bold ? 700 : 400} ${size}px system-ui, sans-serif`;
    context.globalAlpha = texts[i].bold ? 1 : 0.8;
    const y = (ys[row] + ys[row + 1]) / 2 + cell * 0.04;
    context.fillText(texts[i].text, (xs[col] + xs[col + 1]) / 2, y);
  }
  context.globalAlpha = 1;
}

/** The example: givens, predictions with their confidence, wrong cells, the source cell. */
export function drawExample(canvas, layout, example, options) {
  if (layout.kind === "nodes") return drawNodes(canvas, layout, example, options);
  const { size, mark, colours } = options;
  const { context, width, height, ratio } = prepare(canvas, size, (size * layout.rows) / layout.cols);
  const [xs, ys] = [edges(layout.cols, width), edges(layout.rows, height)];
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  context.textAlign = "center";
  context.textBaseline = "middle";
  const cell = xs[1] - xs[0];
  const hasMarks = example.some((one) => one.mark);
  for (let i = 0; i < layout.nodes; i++) {
    const [col, row] = [i % layout.cols, Math.floor(i / layout.cols)];
    const [x, y, w, h] = [xs[col], ys[row], xs[col + 1] - xs[col], ys[row + 1] - ys[row]];
    const { text, question, mark: drawn, isGiven, isWrong, isUndone, confidence } = example[i];
    if (isWrong) {
      context.fillStyle = colours.wrongBack;
      context.fillRect(x, y, w, h);
      // Not by colour alone: a wrong cell also has its corner cut.
      context.fillStyle = colours.wrong;
      context.beginPath();
      context.moveTo(x + w, y);
      context.lineTo(x + w - w * 0.28, y);
      context.lineTo(x + w, y + h * 0.28);
      context.fill();
    }
    if (isUndone) markUndone(context, [x + w * 0.21, y + h * 0.21], w * 0.08, colours, ratio);
    const ink = isGiven ? colours.ink : isWrong ? colours.wrong : colours.predicted;
    if (drawn) {
      drawMark(context, drawn, [x, y, w, h], confidence, colours, ink);
      continue;
    }
    if (!isGiven && confidence !== null) {
      context.fillStyle = ink;
      context.fillRect(x + w * 0.2, y + h * 0.88, w * 0.6 * confidence, Math.max(ratio, h * 0.05));
    }
    context.fillStyle = ink;
    context.font = `${isGiven ? 650 : 450} ${letterSize(cell, text.length > 1 ? 0.42 : 0.56, ratio, hasMarks)}px system-ui, sans-serif`;
    if (question) {
      // What is asked above, the answer below.
      context.font = `450 ${Math.round(cell * (text.length > 2 ? 0.3 : 0.4))}px system-ui, sans-serif`;
      context.fillText(text, x + w / 2, y + h * 0.68);
      context.fillStyle = colours.ink;
      context.font = `600 ${Math.round(cell * (question.length > 2 ? 0.3 : 0.38))}px system-ui, sans-serif`;
      context.fillText(question, x + w / 2, y + h * 0.27);
      continue;
    }
    context.fillText(text, x + w / 2, y + h * 0.5 + h * 0.02);
  }
  drawLines(context, layout, xs, ys, colours, ratio);
  outline(context, xs, ys, layout, mark, colours, ratio);
}

/** The cell under a pointer, or null. */
export function cellAt(canvas, layout, event) {
  const box = canvas.getBoundingClientRect();
  if (layout.kind === "nodes") {
    return nodeAt(layout, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }
  const col = Math.floor(((event.clientX - box.left) / box.width) * layout.cols);
  const row = Math.floor(((event.clientY - box.top) / box.height) * layout.rows);
  if (col < 0 || row < 0 || col >= layout.cols || row >= layout.rows) return null;
  const cell = row * layout.cols + col;
  return cell < layout.nodes ? cell : null;
}
