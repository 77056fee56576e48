// One model's layer: its sublayers, and in each of them a row of boards per quantity.

import { cellAt, cellName, drawBoard, isCrowded } from "./board.js";
import { prepare } from "./canvas.js";
import { make, setLabel, setText } from "./dom.js";
import { kindsKey } from "./edges.js";
import { hoverNode } from "./nodes.js";
import { argmax, boardName, isAddress, modeText, ROWS, scales, short, shorthand, stayOf, temperature } from "./quantities.js";

const MOST_ACROSS = 8; // boards in a line; more are spread over lines of equal length
const ROOM_FOR_WORDS = 66; // pixels of a board under which only numbers fit
const TITLES = {
  edge: ["Edge sublayer", "referral: new edges from the edges of other nodes"],
  node: ["Node sublayer", "attention: nodes read from other nodes"],
};

/** Everything of a model's layer. Built once; moving on only redraws, so nothing jumps. */
export class Panel {
  constructor(app, model) {
    this.app = app;
    this.model = model;
    this.info = app.session.models[model];
    this.sections = [];
    this.element = make("section", { class: "panel", "aria-label": `Model ${this.info.name}` });
    this.note = make("p", { class: "panel-note", hidden: true });
    this.element.append(
      make("header", { class: "panel-head" },
        make("h2", {}, this.info.name),
        make("span", { class: "panel-facts" }, this.info.facts)),
      this.note,
    );
    for (const kind of ["edge", "node"]) this.build(kind);
    this.element.addEventListener("pointermove", (event) => this.hover(event));
    this.element.addEventListener("pointerleave", () => {
      app.tooltip.hide();
      hoverNode(null, null);
    });
  }

  /** The sections of a kind: as many as the layer with most of them has. */
  build(kind) {
    const own = this.info.sublayers.filter((sublayer) => sublayer.kind === kind);
    const depth = Math.max(0, ...own.map((sublayer) => sublayer.index + 1));
    const names = new Set(own.flatMap((sublayer) => sublayer.names));
    for (let index = 0; index < depth; index++) {
      const rows = ROWS[kind].filter((row) => names.has(row.name)).map((row) => this.row(kind, index, row));
      // Side by side, results come first: there the two models have the same rows.
      rows.forEach((row, i) => row.element.style.setProperty("--from-end", String(rows.length - i)));
      const title = TITLES[kind][0] + (depth > 1 ? ` ${index}` : "");
      const state = make("span", { class: "section-state" });
      const element = make("section", { class: `sublayer ${kind}` },
        make("h3", {}, title, make("span", { class: "section-about" }, TITLES[kind][1]), state),
        ...rows.map((row) => row.element));
      this.sections.push({ kind, index, rows, element, state });
      this.element.append(element);
    }
  }

  row(kind, index, row) {
    const { heads, slots, stays } = this.info;
    const count = row.letter === "a" ? heads : row.letter === "e" ? slots + stays.length : slots;
    const boards = Array.from({ length: count }, (_, board) => this.board(kind, index, row, board));
    const grid = make("div", { class: "boards" }, ...boards.map((b) => b.element));
    const most = isCrowded(this.app.session.layout) ? MOST_ACROSS / 2 : MOST_ACROSS;
    const renewed = row.letter === "e" ? slots : count; // edges that stay follow on a line of their own
    const across = Math.ceil(renewed / Math.ceil(renewed / most));
    grid.style.setProperty("--across", String(across));
    grid.style.setProperty("--across-half", String(Math.ceil(across / 2)));
    const own = this.info.sublayers.filter((sublayer) => sublayer.kind === kind);
    const hasTemps = own.some((sublayer) => sublayer.names.includes(row.temps));
    const classes = `row${row.isNewEdge ? " new-edges" : ""}${hasTemps ? " has-temps" : ""}`;
    const mode = make("span", { class: "row-mode" });
    const element = make("div", { class: classes },
      make("div", { class: "row-label", title: row.about },
        make("h4", {}, row.title, mode), make("p", {}, row.about), row.isBars && stays.length ? kindsKey() : null), grid);
    return { row, boards, element, mode };
  }

  board(kind, index, row, board) {
    const canvas = make("canvas", { class: row.isBars ? "bar-chart" : "board" });
    const name = make("span", { class: "board-name" }, boardName(this.info, row, board));
    const number = make("span", { class: "board-number" });
    const choose = () => this.app.choose(this.model, kind, index, row, board);
    const face = row.isBars
      ? make("div", { class: "face", role: "img" }, canvas)
      : make("button", { class: "face", type: "button", onclick: choose }, canvas);
    const stay = stayOf(this.info, row, board);
    const element = make("figure", { class: stay ? `figure stays-${stay}` : "figure" }, face,
      make("figcaption", {}, name, number));
    const entry = { canvas, face, name, number, element, row, values: null };
    canvas.entry = entry;
    return entry;
  }

  sublayer(layer, kind, index) {
    return this.info.sublayers.find(
      (s) => s.layer === layer && s.kind === kind && s.index === index) ?? null;
  }

  /** Width of a board on screen. */
  size() {
    return this.element.querySelector(".figure:not([hidden]) canvas")?.clientWidth ?? 0;
  }

  /** Draw the view. `pack` is null while it is on its way, or where nothing was recorded. */
  draw(view, pack, colours, size) {
    if (!size) return;
    const beyond = view.layer >= this.info.layers;
    const here = this.info.layerNames?.[view.layer] ? "this core layer" : `layer ${view.layer}`;
    setText(this.note, beyond ? `This model has ${this.info.layers} layers.` : "");
    this.note.hidden = !beyond;
    for (const section of this.sections) {
      const sublayer = this.sublayer(view.layer, section.kind, section.index);
      setText(section.state, sublayer || beyond ? "" : `none in ${here}`);
      section.element.classList.toggle("is-absent", !sublayer);
      for (const row of section.rows) this.drawRow(row, view, pack, sublayer, size, colours);
    }
  }

  drawRow({ row, boards, mode }, view, pack, sublayer, size, colours) {
    const asScores = Boolean(row.isFactor) && view.factors === "scores";
    const path = sublayer?.path;
    const shown = boards.map((_, i) => (sublayer ? this.app.boardOf(this.model, pack, path, row, i, asScores) : null));
    const values = shown.map((one) => one?.values ?? null);
    if (row.isBars) {
      boards.forEach((entry, i) => this.drawBars(entry, values[i], view.cell, size, colours));
      return;
    }
    const { layout } = this.app.session;
    setText(mode, isAddress(row) ? modeText(this.app.edgesShown, cellName(layout, view.cell)) : "");
    const limits = scales(values, view.scale, asScores);
    const texts = this.app.texts(this.model);
    const hasAny = values.some(Boolean);
    boards.forEach((entry, i) => {
      entry.values = values[i];
      entry.path = path;
      // Before the first referral a model with given edges has no slots to show.
      entry.element.hidden = row.letter === "e" && hasAny && !values[i];
      const [low, high] = limits[i];
      drawBoard(entry.canvas, layout, values[i], { size, low, high, mark: view.cell, colours, texts,
        isWritten: view.digits, arrows: shown[i]?.arrows });
      entry.element.classList.toggle("is-chosen", this.app.isChosen(this.model, sublayer, row, i));
      const temp = shown[i]?.arrows ? null : temperature(pack, path, row, i); // the source's own
      const isLong = entry.name.textContent.length > 3; // `given`, `empty`
      this.caption(entry, i, row, sublayer, temp, asScores || isLong || size < ROOM_FOR_WORDS);
    });
  }

  caption(entry, index, row, sublayer, temp, isBare) {
    const { values } = entry;
    if (!values) {
      setText(entry.number, "");
      setLabel(entry.face, `${row.title} ${index}: absent`);
      return;
    }
    const { layout } = this.app.session;
    const best = argmax(values);
    const numbers = isBare ? short(values[best]) : `max ${short(values[best])}`;
    setText(entry.number, temp === null ? numbers : `${numbers}\nt ${short(temp)}`);
    setLabel(entry.face,
      `${row.title} ${shorthand(sublayer, row, index, this.info)} of ${cellName(layout, this.app.view.cell)}: ` +
      `most at ${cellName(layout, best)}, ${short(values[best])}`);
  }

  /** A bar per edge: made ones are solid, given ones striped, the empty one hollow. */
  drawBars(entry, values, cell, size, colours) {
    const { context, width, height, ratio } = prepare(entry.canvas, size, 26);
    entry.values = values;
    context.fillStyle = colours.absent;
    context.fillRect(0, 0, width, height);
    setText(entry.number, "");
    if (!values) return;
    const edges = this.app.edgesOf(this.model, cell, values.length);
    entry.bars = Array.from(values, (value, slot) => ({ value, ...edges.at(slot) })).filter(({ kind }) => kind);
    const breaks = entry.bars.map(({ kind }, i) => Number(i > 0 && kind !== entry.bars[i - 1].kind));
    const gap = 3 * ratio; // between kinds
    const step = (width - gap * breaks.reduce((a, b) => a + b, 0)) / entry.bars.length;
    let x = 0;
    entry.bars.forEach((bar, i) => {
      x += gap * breaks[i];
      const tall = Math.max(1, bar.value * height);
      const inset = step > 4 ? 1 : 0;
      const box = [x + inset, height - tall, Math.max(1, step - 2 * inset), tall];
      context.fillStyle = context.strokeStyle = colours[bar.kind];
      if (bar.kind === "empty" && step > 4) {
        context.lineWidth = ratio;
        context.strokeRect(box[0] + ratio / 2, box[1] + ratio / 2, box[2] - ratio, tall);
      } else context.fillRect(...box);
      if (bar.kind === "given") {
        context.fillStyle = colours.paper;
        for (let y = height - 4 * ratio; y > height - tall; y -= 4 * ratio) context.fillRect(box[0], y, box[2], ratio);
      }
      x += step;
      bar.end = x / width;
    });
    const best = entry.bars[argmax(entry.bars.map(({ value }) => value))];
    // Colour and stripes show the kind of an edge that stays; its word would not fit.
    setText(entry.number, `${best.kind === "made" ? `${best.name} ` : ""}${short(best.value)}`);
    setLabel(entry.face, `e1 weights ${entry.name.textContent}: most on ${best.name}, ${short(best.value)}`);
  }

  hover(event) {
    const entry = event.target.entry;
    if (!entry || !entry.values) {
      this.app.tooltip.hide();
      hoverNode(null, null);
      return;
    }
    const { layout } = this.app.session;
    if (entry.row.isBars) {
      const box = entry.canvas.getBoundingClientRect();
      const part = (event.clientX - box.left) / box.width;
      const bar = entry.bars.find(({ end }) => part <= end) ?? entry.bars.at(-1);
      this.app.tooltip.show(event, `edge ${bar.name}: ${short(bar.value)}`);
      return;
    }
    const cell = cellAt(entry.canvas, layout, event);
    hoverNode(entry.canvas, cell);
    if (cell === null) return this.app.tooltip.hide();
    this.app.tooltip.show(event, `${entry.row.title} ${entry.name.textContent} → ` +
      `${cellName(layout, cell)}: ${short(entry.values[cell])}`);
  }
}
