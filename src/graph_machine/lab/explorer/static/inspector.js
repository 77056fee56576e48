// The inspector: one board enlarged, and the trail of a referral from edge to edge.

import { cellAt, cellName, drawBoard } from "./board.js";
import { make } from "./dom.js";
import { inputEdgeName } from "./edges.js";
import { hoverNode } from "./nodes.js";
import {
  argmax, boardName, contributions, isAddress, modeText, normalisedEntropy, range, rowOf, short, shorthand,
  softmax, stayOf, temperature, topOf,
} from "./quantities.js";

const SHOWN = 12; // pairs in the list
const LEAST_SHOWN = 0.002; // weight of a pair that is worth a line

export class Inspector {
  constructor(app, element) {
    this.app = app;
    this.element = element;
  }

  get layout() {
    return this.app.session.layout;
  }

  /** Whose board it is, where there are two models. */
  modelName(model) {
    const { models } = this.app.session;
    return models.length > 1 ? `${models[model].name} · ` : "";
  }

  /** The edge sublayers of a model, first to last. */
  edgeSublayers(model) {
    return this.app.session.models[model].sublayers.filter((s) => s.kind === "edge");
  }

  /** The sublayer that made the edges which `path` reads; null: they are input edges. */
  before(model, path) {
    const all = this.app.session.models[model].sublayers;
    const place = all.findIndex((s) => s.path === path);
    return all.slice(0, Math.max(0, place)).filter((s) => s.kind === "edge").pop() ?? null;
  }

  async draw(view, colours) {
    if (view.trail.length) await this.drawTrail(view, colours);
    else if (view.chosen) await this.drawChosen(view, colours);
    else this.drawHint();
  }

  drawHint() {
    const canFollow = this.app.session.models.some((m) => m.sublayers.some((s) => s.kind === "edge"));
    this.fill(null, [
      make("p", { class: "hint" }, `Click any board to see it large, with ${this.app.session.contentsWord} in it.`),
      canFollow ? make("p", { class: "hint" },
        "Click a new edge to see which edges it was made of, and follow them one level down " +
        "at a time, back to the input edges.") : null,
    ]);
  }

  fill(title, children) {
    const close = title
      ? make("button", { class: "quiet", type: "button", title: "Close (Esc)", "aria-label": "Close the inspector",
          onclick: () => this.app.closeInspector() }, "✕")
      : null;
    const head = make("header", { class: "inspector-head" },
      make("h2", {}, title ?? "Inspector"), close);
    this.element.replaceChildren(head, ...children.filter(Boolean));
  }

  /** A large board with digits; the pointer shows its values. */
  large({ values, arrows }, low, high, mark, texts, colours, label) {
    const canvas = make("canvas", { class: "large", role: "img", "aria-label": label });
    canvas.addEventListener("pointermove", (event) => {
      const cell = cellAt(canvas, this.layout, event);
      hoverNode(canvas, cell);
      if (cell === null) this.app.tooltip.hide();
      else this.app.tooltip.show(event, `${cellName(this.layout, cell)}: ${short(values[cell])}`);
    });
    canvas.addEventListener("pointerleave", () => {
      this.app.tooltip.hide();
      hoverNode(null, null);
    });
    const size = Math.max(160, this.element.clientWidth - 34);
    drawBoard(canvas, this.layout, values, { size, low, high, mark, colours, texts, isWritten: true, arrows });
    return canvas;
  }

  small(values, mark, colours, size) {
    const canvas = make("canvas", { class: "small", "aria-hidden": "true" });
    drawBoard(canvas, this.layout, values, { size, low: 0, high: topOf(values), mark, colours });
    canvas.style.width = `${size}px`;
    return canvas;
  }

  facts(pairs) {
    return make("dl", { class: "facts" }, ...pairs.filter((p) => p[1] !== null).flatMap(
      ([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }

  async drawChosen(view, colours) {
    const { model, kind, index, name, board } = view.chosen;
    const row = rowOf(kind, name);
    const sublayer = this.app.session.models[model]?.sublayers.find(
      (s) => s.layer === view.layer && s.kind === kind && s.index === index);
    const pack = sublayer ? await this.app.nodePack(model, view.cell) : null;
    if (view !== this.app.view) return;
    const asScores = Boolean(row?.isFactor) && view.factors === "scores";
    const shown = sublayer && row ? this.app.boardOf(model, pack, sublayer.path, row, board, asScores) : null;
    const values = shown?.values;
    if (!values) {
      this.fill(row?.title ?? "Inspector", [
        make("p", { class: "hint" }, `There is no such board in ${this.app.layerName(view.layer)}.`)]);
      return;
    }
    const [least, most] = range(values);
    const best = argmax(values);
    const isOwn = !shown.arrows; // of the source, not of others
    const temp = isOwn ? temperature(pack, sublayer.path, row, board) : null;
    const cell = cellName(this.layout, view.cell);
    const info = this.app.session.models[model];
    const stay = stayOf(info, row, board);
    this.fill(`${row.title} ${boardName(info, row, board)}`, [
      make("p", { class: "path" },
        `${this.modelName(model)}${shorthand(sublayer, row, board, info)} · ${stay ? "input graph" : sublayer.recorded[name]}`),
      this.large(shown, asScores ? least : 0, asScores ? most : view.scale === "full" ? 1 : topOf(values), view.cell,
        this.app.texts(model), colours, `${row.title} ${board} of ${cell}`),
      this.facts([
        ["source", cell],
        ["given edges", stay === "given" ? this.app.edgesOf(model, view.cell).given.join(", ") || "none" : null],
        ["edges", (isAddress(row) && modeText(this.app.edgesShown, cell)) || null],
        ["most at", `${cellName(this.layout, best)} (${short(values[best])})`],
        ["entropy, normalised", !isOwn ? null : short(normalisedEntropy(asScores ? softmax(values) : values))],
        ["temperature", temp === null ? null : short(temp)],
      ]),
      this.origin(view, sublayer, row, board, model),
    ]);
  }

  /** The way from a board to the edge that stands behind it, or that comes of it. */
  origin(view, sublayer, row, board, model) {
    if (row.letter === "a") return null;
    const stay = stayOf(this.app.session.models[model], row, board);
    if (stay) return make("p", { class: "hint" }, `${stay === "given" ? "Given edges stay" : "The empty edge stays"} the same in every layer.`);
    const made = row.letter === "r" ? sublayer : this.before(model, sublayer.path);
    if (!made) return make("p", { class: "hint" }, "This is an input edge.");
    const text = row.letter === "r" ? "Follow the edge that this head makes" : "Where does this edge come from?";
    const edge = { path: made.path, cell: view.cell, slot: board };
    return make("button", { type: "button", onclick: () => this.app.follow(model, [edge]) }, text);
  }

  async drawTrail(view, colours) {
    const model = view.trailModel;
    const edge = view.trail[view.trail.length - 1];
    const sublayer = this.edgeSublayers(model).find((s) => s.path === edge.path);
    const slots = this.app.session.models[model]?.slots ?? 0;
    if (!sublayer || edge.slot >= slots) {
      this.fill("Follow a referral", [make("p", { class: "hint" }, "This model has no such edge.")]);
      return;
    }
    const pack = await this.app.nodePack(model, edge.cell);
    if (view !== this.app.view) return;
    const address = pack?.slice(`${edge.path}.address_outs`, edge.slot);
    const parts = pack ? contributions(pack, edge.path, edge.slot, SHOWN) : null;
    const name = cellName(this.layout, edge.cell);
    this.fill("Follow a referral", [
      this.breadcrumbs(view),
      make("p", { class: "path" }, `${this.modelName(model)}new edge ${edge.slot} of ${name}, ` +
        `${this.app.layerName(sublayer.layer).toLowerCase()} · ${sublayer.recorded.address_outs}`),
      address ? this.large({ values: address }, 0, topOf(address), edge.cell, this.app.texts(model), colours,
        `New edge ${edge.slot} of ${name}`) : make("p", { class: "hint" }, "The address was not recorded."),
      parts ? this.parts(view, model, sublayer, edge, parts, colours)
        : make("p", { class: "hint" }, "The weights of (n2, e2) pairs were not recorded."),
      parts ? this.bySlot(pack, edge, colours) : null,
    ]);
  }

  breadcrumbs(view) {
    const list = make("ol", { class: "crumbs" });
    view.trail.forEach((edge, i) => {
      const short = this.edgeSublayers(view.trailModel).find((s) => s.path === edge.path)?.short;
      const text = `${short ?? "?"} ${cellName(this.layout, edge.cell)} e${edge.slot}`;
      const isLast = i === view.trail.length - 1;
      const crumb = isLast ? make("span", { "aria-current": "step" }, text)
        : make("button", { type: "button", class: "link",
            onclick: () => this.app.follow(view.trailModel, view.trail.slice(0, i + 1)) }, text);
      list.append(make("li", {}, crumb));
    });
    return make("nav", { "aria-label": "Edges followed so far" }, list);
  }

  /** The (n2, e2) pairs that an edge was made of, most weight first. */
  parts(view, model, sublayer, edge, parts, colours) {
    const earlier = this.before(model, sublayer.path);
    const run = this.app.run;
    const list = make("ul", { class: "parts" });
    const shown = parts.filter((part) => part.weight >= LEAST_SHOWN);
    for (const part of shown) {
      const prefix = `${model}/${sublayer.path}.address_ins`;
      const isKnown = this.app.session.nodes?.includes(part.cell) ?? true;
      const edges = this.app.edgesOf(model, part.cell, part.slots);
      const { kind: origin, name: slotName } = edges.at(part.slot) ?? { kind: "given", name: "none" };
      const isMade = origin === "made";
      const made = isKnown && isMade
        ? run.slice(run.has(`${prefix}_e2`) ? `${prefix}_e2` : prefix, part.cell, part.slot) : null;
      const address = isMade ? made : edges.address(origin, part.slot);
      const name = cellName(this.layout, part.cell);
      const kind = earlier || !made ? "" : ` · ${inputEdgeName(this.layout, part.cell, made)}`;
      const next = earlier && isMade ? { path: earlier.path, cell: part.cell, slot: part.slot } : null;
      const share = `${(100 * part.weight).toFixed(part.weight < 0.1 ? 1 : 0)}%`;
      const bar = make("span");
      bar.style.width = `${100 * part.weight}%`;
      const content = [
        address ? this.small(address, part.cell, colours, 46) : make("span", { class: "part-unknown" }, "?"),
        make("span", { class: "part-text" },
          make("span", { class: "part-name" }, isMade ? null : make("i", { class: `kind kind-${origin}` }), `${name}'s ${slotName}${kind}`),
          make("span", { class: "part-bar" }, bar)),
        make("span", { class: "part-share" }, share),
      ];
      list.append(make("li", {}, next
        ? make("button", { type: "button", "aria-label": `Follow edge ${part.slot} of ${name}, ${share}`,
            onclick: () => this.app.follow(model, [...view.trail, next]) }, ...content)
        : make("div", { class: "part-end" }, ...content)));
    }
    const held = shown.reduce((sum, part) => sum + part.weight, 0);
    const what = earlier ? "made of these edges (e2) of these nodes (n2)" : "made of these input edges";
    return make("section", {}, make("h3", {}, what), list,
      make("p", { class: "hint" }, `Shown: ${(100 * held).toFixed(0)}% of the weight.`));
  }

  /** Weight on n2, one board per slot of e2. */
  bySlot(pack, edge, colours) {
    const { shape } = pack.get(`${edge.path}.e2_weights`);
    const weights = pack.slice(`${edge.path}.e2_weights`, edge.slot);
    const slots = shape[2];
    const { trailModel } = this.app.view;
    const info = this.app.session.models[trailModel];
    // Given edges differ from node to node: together they are one board.
    const place = this.app.edgesOf(trailModel, edge.cell, slots).made;
    const boards = [...Array.from({ length: place }, (_, i) => `e${i}`), ...info.stays].map((name, i) => {
      const from = name === "empty" ? slots - 1 : i;
      const to = name === "given" ? slots - Number(info.stays.includes("empty")) : from + 1;
      const values = Float32Array.from({ length: shape[1] }, (_, cell) =>
        weights.subarray(cell * slots + from, cell * slots + to).reduce((a, b) => a + b, 0));
      return { name, values, kind: i < place ? "made" : name };
    });
    const high = Math.max(...boards.flatMap(({ values }) => [...values]));
    const size = Math.floor((this.element.clientWidth - 34 - 3 * 8) / 4);
    return make("section", {}, make("h3", {}, "weight on n2, by e2 slot (one scale)"),
      make("div", { class: "slots" }, ...boards.map(({ name, values, kind }) => {
        const canvas = make("canvas", { role: "img", "aria-label": `e2 slot ${name}` });
        drawBoard(canvas, this.layout, values, { size, low: 0, high, mark: edge.cell, colours });
        const total = values.reduce((a, b) => a + b, 0);
        return make("figure", { class: `figure stays-${kind}` }, canvas, make("figcaption", {},
          make("span", { class: "board-name" }, name),
          make("span", { class: "board-number" }, short(total))));
      })));
  }
}
