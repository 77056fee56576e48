// The view: everything that a shared link has to say. It lives in the URL's hash.

import { cellName, cellOf } from "./board.js";
import { MODES } from "./quantities.js";

const SCALES = ["board", "row", "full"];
const FACTORS = ["weights", "scores"];

/** An edge made by sublayer `path` at `cell` in `slot`, as text: `layers.2.edge.0~r2c5~3`. */
function edgeText(layout, edge) {
  return `${edge.path}~${cellName(layout, edge.cell)}~${edge.slot}`;
}

function readEdge(layout, text) {
  const [path, name, slot] = text.split("~");
  const cell = cellOf(layout, name ?? "");
  if (!/^layers\.\d+\.edge\.\d+$/.test(path) || cell === null || !/^\d+$/.test(slot ?? "")) {
    return null;
  }
  return { path, cell, slot: Number(slot) };
}

/** The hash of a view. */
export function writeHash(layout, view) {
  const parts = new URLSearchParams();
  parts.set("p", view.example);
  parts.set("c", cellName(layout, view.cell));
  parts.set("l", String(view.layer));
  if (view.scale !== "board") parts.set("scale", view.scale);
  if (view.factors !== "weights") parts.set("factors", view.factors);
  if (view.edges !== "out") parts.set("edges", view.edges);
  if (view.digits) parts.set("digits", "1");
  if (view.chosen) {
    const { model, kind, index, name, board } = view.chosen;
    parts.set("b", [model, kind, index, name, board].join("~"));
  }
  if (view.trail.length) {
    parts.set("m", String(view.trailModel));
    parts.set("t", view.trail.map((edge) => edgeText(layout, edge)).join("_"));
  }
  return `#${parts.toString().replace(/%7E/g, "~")}`;
}

/** A view from a hash; what it does not say, or says badly, is taken from `fallback`. */
export function readHash(layout, hash, fallback) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const view = { ...fallback, chosen: null, trail: [], trailModel: 0 };
  view.example = parts.get("p") ?? fallback.example;
  view.cell = cellOf(layout, parts.get("c") ?? "") ?? fallback.cell;
  if (/^\d+$/.test(parts.get("l") ?? "")) view.layer = Number(parts.get("l"));
  if (SCALES.includes(parts.get("scale"))) view.scale = parts.get("scale");
  if (FACTORS.includes(parts.get("factors"))) view.factors = parts.get("factors");
  if (MODES.includes(parts.get("edges"))) view.edges = parts.get("edges");
  view.digits = parts.get("digits") === "1" || (!parts.has("digits") && fallback.digits);
  const board = /^(\d+)~(edge|node)~(\d+)~(\w+)~(\d+)$/.exec(parts.get("b") ?? "");
  if (board) {
    const [, model, kind, index, name, number] = board;
    view.chosen = { model: Number(model), kind, index: Number(index), name, board: Number(number) };
  }
  const edges = (parts.get("t") ?? "").split("_").filter(Boolean).map((t) => readEdge(layout, t));
  if (edges.length && edges.every(Boolean)) {
    view.trail = edges;
    view.trailModel = Number(parts.get("m") ?? 0) || 0;
  }
  return view;
}

/** What every page starts with. */
export function firstView(session) {
  return {
    example: session.examples[0]?.example ?? "",
    cell: session.start,
    layer: session.startLayer,
    scale: "board",
    factors: "weights",
    edges: "out",
    digits: false,
    chosen: null, // the enlarged board: {model, kind, index, name, board}
    trail: [], // edges followed so far, the first one clicked first: [{path, cell, slot}]
    trailModel: 0,
  };
}
