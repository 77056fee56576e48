// Tokens and answers that are drawn, not written: walls as solid cells, a way as dots.

import { make } from "./dom.js";

const MANY_COLUMNS = 12; // of a board: with more, boards are drawn larger
const MANY_NODES = 12; // of a graph, likewise

/** Whether an example needs much room. */
export function isCrowded({ kind, cols, cells }) {
  return kind === "nodes" ? cells > MANY_NODES : cols > MANY_COLUMNS;
}

const LEAST_LETTER = 9; // pixels: the few letters beside marks may be larger than a small cell

const LEAST_DOTTED = 3; // pixels of a cell that shows a dot and its colour

/** A mark of the example's own board; `sure` is the confidence of an answer, or null. */
export function drawMark(context, drawn, [x, y, w, h], sure, colours, ink) {
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
export function overlayMark(context, drawn, [x, y, w, h], part, colours) {
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
export function letterSize(cell, part, ratio, hasMarks) {
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
  const links = isNodes ? [entry(sign("link"), "input edge"), entry(sign("edge"), "weight: the wider, the more")] : [];
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
