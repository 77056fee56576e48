// The explorer: loads a session, keeps the view, draws whatever changed, and listens to keys.

import { isCrowded } from "./board.js";
import { gradient, onThemeChange, theme } from "./canvas.js";
import { byId, setText, Tooltip } from "./dom.js";
import { NodeEdges } from "./edges.js";
import { ExamplePane, stepCell } from "./example.js";
import { Inspector } from "./inspector.js";
import { Panel } from "./panel.js";
import { boardValues, isAddress, MODES, pointing, rowsOf, stayOf } from "./quantities.js";
import { Source } from "./source.js";
import { firstView, readHash, writeHash } from "./state.js";

const SCALE_ORDER = ["board", "row", "full"];

function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select");
}

/** Key -> what it does, for keys without Shift. */
function actions(app) {
  const { view } = app;
  return {
    ArrowLeft: () => app.moveLayer(-1),
    ArrowRight: () => app.moveLayer(1),
    Home: () => app.setView({ layer: 0 }),
    End: () => app.setView({ layer: app.layers - 1 }),
    p: () => app.togglePlay(),
    d: () => app.setView({ digits: !view.digits }),
    f: () => app.setView({ factors: view.factors === "weights" ? "scores" : "weights" }),
    e: () => app.hasModes && app.setView({ edges: MODES[(MODES.indexOf(view.edges) + 1) % MODES.length] }),
    s: () => {
      const next = (SCALE_ORDER.indexOf(view.scale) + 1) % SCALE_ORDER.length;
      app.setView({ scale: SCALE_ORDER[next] });
    },
    Escape: () => app.closeInspector(),
    Backspace: () => {
      if (view.trail.length > 1) app.follow(view.trailModel, view.trail.slice(0, -1));
      else app.closeInspector();
    },
    "?": () => byId("help").showModal(),
  };
}

function bindKeys(app) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || !app.run) return;
    if (isTyping(event.target)) return;
    if (event.shiftKey && event.key.startsWith("Arrow")) {
      app.setView({ cell: stepCell(app.session.layout, app.view.cell, event.key) });
    } else if (event.key === " " && !(event.target instanceof HTMLButtonElement)) {
      app.togglePlay();
    } else {
      const action = actions(app)[event.key];
      if (!action) return;
      action();
    }
    event.preventDefault();
  });
}

const SLOW = 400; // milliseconds after which the page says that it waits
const SAVE_PAUSE = 120; // milliseconds from the last change to the new address
const FRAME = 900; // milliseconds per layer of the animation
const SCALE_TEXT = { board: "board max", row: "row max", full: "1" };

class App {
  constructor(session, source) {
    this.session = session;
    this.source = source;
    this.run = null;
    this.packs = session.models.map(() => null);
    this.tooltip = new Tooltip();
    this.colours = theme();
    this.view = firstView(session);
    this.layers = Math.max(...session.models.map((model) => model.layers));
    this.draws = 0;
    this.panels = session.models.map((_, index) => new Panel(this, index));
    byId("panels").append(...this.panels.map((panel) => panel.element));
    this.example = new ExamplePane(this);
    setText(byId("digits-text"), session.contentsWord);
    this.inspector = new Inspector(this, byId("inspector"));
    this.bind();
  }

  bind() {
    byId("layer").max = String(this.layers - 1);
    byId("layer").addEventListener("input", (event) => this.setView({ layer: Number(event.target.value) }));
    byId("previous").addEventListener("click", () => this.moveLayer(-1));
    byId("next").addEventListener("click", () => this.moveLayer(1));
    byId("play").addEventListener("click", () => this.togglePlay());
    byId("scale").addEventListener("change", (event) => this.setView({ scale: event.target.value }));
    byId("factors").addEventListener("change", (event) => this.setView({ factors: event.target.value }));
    byId("edges").addEventListener("change", (event) => this.setView({ edges: event.target.value }));
    byId("digits").addEventListener("change", (event) => this.setView({ digits: event.target.checked }));
    byId("share").addEventListener("click", () => this.share());
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    window.addEventListener("hashchange", () => {
      if (location.hash !== this.written) this.open(readHash(this.session.layout, location.hash, this.view));
    });
    onThemeChange(() => this.recolour());
    new ResizeObserver(() => this.draw()).observe(byId("panels"));
    bindKeys(this);
  }

  recolour() {
    this.colours = theme();
    byId("colour-bar").style.background = gradient(this.colours.map);
    this.show();
  }

  say(message, isError = false) {
    setText(byId("message"), message);
    byId("message").classList.toggle("is-error", isError);
  }

  /** Show a whole view, running its example if it is another one. */
  async open(view) {
    const previous = this.view;
    this.view = this.clamped(view);
    if (!this.run || view.example !== this.run.header.example) {
      const isLoaded = await this.load(view.example);
      if (!isLoaded) this.view = { ...this.view, example: previous.example };
    } else {
      await this.show();
    }
  }

  /** Run a example. On failure the present one stays, with a message. */
  async load(text) {
    const ticket = (this.loading = Symbol("load"));
    document.body.classList.add("is-busy");
    this.say("Running …");
    try {
      const run = await this.source.run(text);
      if (ticket !== this.loading) return false;
      this.run = run;
      this.session.layout = run.header.layout; // graphs differ from example to example
      this.packs = this.session.models.map(() => null);
      this.view = this.clamped({ ...this.view, example: run.header.example });
      this.example.entry.value = run.header.example;
      this.say(run.header.took ? `Forward pass: ${run.header.took} ms.` : "");
      await this.show();
      return true;
    } catch (error) {
      if (ticket === this.loading) this.say(error.message, true);
      return false;
    } finally {
      if (ticket === this.loading) document.body.classList.remove("is-busy");
    }
  }

  async random() {
    try {
      await this.load((await this.source.draw()).example);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  clamped(view) {
    const { layout, models } = this.session;
    const layer = Math.min(this.layers - 1, Math.max(0, view.layer));
    const cell = Math.min(layout.nodes - 1, Math.max(0, view.cell));
    const chosen = view.chosen && view.chosen.model < models.length ? view.chosen : null;
    const trail = view.trailModel < models.length ? view.trail : [];
    return { ...view, layer, cell, chosen, trail };
  }

  setView(changes) {
    this.view = this.clamped({ ...this.view, ...changes });
    return this.show();
  }

  moveLayer(step) {
    this.setView({ layer: this.view.layer + step });
  }

  /** What the cell packs hold for a source cell; null where it was not recorded. */
  async nodePack(model, cell) {
    if (this.session.nodes && !this.session.nodes.includes(cell)) return null;
    return this.source.node(this.run.header.example, model, cell);
  }

  /** Fetch what the view needs, then draw it in one go. */
  async show() {
    if (!this.run) return;
    const { view } = this;
    // A node of a large example may need a forward pass.
    const slow = setTimeout(() => this.say("Running …"), SLOW);
    try {
      const packs = await Promise.all(this.packs.map((_, model) => this.nodePack(model, view.cell)));
      if (view !== this.view) return;
      this.packs = packs;
      this.draw();
      // Writing the address takes longer than drawing, and browsers limit how often it may be done.
      clearTimeout(this.saving);
      this.saving = setTimeout(() => this.save(), SAVE_PAUSE);
      await this.inspector.draw(view, this.colours);
    } catch (error) {
      this.say(error.message, true);
    } finally {
      clearTimeout(slow);
      if (byId("message").textContent === "Running …") this.say("");
    }
  }

  draw() {
    if (!this.run) return;
    const { view, colours } = this;
    // Sizes are read before anything is written, so that the page is laid out once.
    const sizes = this.panels.map((panel) => panel.size());
    this.example.measure();
    byId("layer").value = String(view.layer);
    const named = this.layerName(view.layer);
    const isRound = !named.startsWith("layer");
    const plain = this.layers > 1 ? `Layer ${view.layer} (0 to ${this.layers - 1})` : "Layer 0 (the only one)";
    setText(byId("layer-text"), isRound ? named : plain);
    byId("layer").setAttribute("aria-valuetext", named);
    byId("scale").value = view.scale;
    byId("factors").value = view.factors;
    byId("digits").checked = view.digits;
    byId("edges").value = view.edges;
    byId("edges-label").hidden = !this.hasModes;
    document.body.classList.toggle("is-crowded", isCrowded(this.session.layout));
    setText(byId("scale-text"), SCALE_TEXT[view.scale]);
    this.example.draw(view, colours);
    this.panels.forEach((panel, model) => panel.draw(view, this.packs[model], colours, sizes[model]));
    const isMissing = this.session.nodes && !this.session.nodes.includes(view.cell);
    byId("missing").hidden = !isMissing;
    document.body.classList.toggle("has-inspected", Boolean(view.chosen || view.trail.length));
    // Counted for whoever waits for a drawing, such as the tests.
    byId("panels").dataset.draws = String(++this.draws);
  }

  save() {
    this.written = writeHash(this.session.layout, this.view);
    if (this.written !== location.hash) history.replaceState(null, "", this.written);
  }

  /** `layer 3`, or a round of a recurrent core by its name. */
  layerName(layer) {
    return this.session.models.map((model) => model.layerNames?.[layer]).find(Boolean) ?? `layer ${layer}`;
  }

  /** Whether the edges of all nodes are known, so that one can choose whose are shown. */
  get hasModes() {
    return this.session.layout.kind === "nodes" && this.session.models.some((model) => model.slots);
  }

  /** Whose edges are shown: "out" of the source, "in" to it, or of "all". */
  get edgesShown() {
    return this.hasModes ? this.view.edges : "out";
  }

  /** What a board shows: {values, arrows}, arrows only where they are not those of the source. */
  boardOf(model, pack, path, row, board, asScores) {
    const { edgesShown: mode, view: { cell } } = this;
    const stay = stayOf(this.session.models[model], row, board);
    if (stay && mode === "out") {
      const values = this.edgesOf(model, cell).address(stay);
      const arrows = [...values.keys()].filter((to) => stay === "given" && values[to]);
      return { values, arrows: arrows.map((to) => ({ from: cell, to, weight: 0.6, kind: stay })) };
    }
    if (isAddress(row) && mode !== "out") {
      const nodes = Array.from({ length: this.session.layout.nodes }, (_, node) => node);
      const rows = stay ? nodes.map((node) => this.edgesOf(model, node).address(stay))
        : rowsOf(this.run, `${model}/${path}.${row.name}`, board);
      if (rows) return pointing(rows, mode, cell);
    }
    return { values: boardValues(pack, path, row, board, asScores, this.seen) };
  }

  /** The edges of a node of the example, in a sublayer with weights over so many slots. */
  edgesOf(model, cell, slots = 0) {
    const { edges } = this.run.header.models[model];
    return new NodeEdges(this.session.layout, edges, cell, this.session.isCausal, slots);
  }

  /** How many nodes the source sees, where it sees no later ones; else null. */
  get seen() {
    return this.session.isCausal ? this.view.cell + 1 : null;
  }

  /** What stands in the cells, for boards of weights: givens bold, predictions light; marks. */
  texts(model) {
    return this.example.cells(model).map(({ text, question, mark, isGiven }) =>
      ({ text: question || text, mark, bold: isGiven || Boolean(question) })); // what a node holds
  }

  choose(model, kind, index, row, board) {
    const sublayer = this.panels[model].sublayer(this.view.layer, kind, index);
    if (!sublayer) return;
    if (row.isNewEdge) {
      this.follow(model, [{ path: sublayer.path, cell: this.view.cell, slot: board }]);
    } else {
      this.setView({ chosen: { model, kind, index, name: row.name, board }, trail: [] });
    }
  }

  isChosen(model, sublayer, row, board) {
    const { chosen, trail, trailModel, cell } = this.view;
    if (!sublayer) return false;
    const last = trail[trail.length - 1];
    if (last) {
      return Boolean(row.isNewEdge) && trailModel === model && last.path === sublayer.path &&
        last.slot === board && last.cell === cell;
    }
    return Boolean(chosen) && chosen.model === model && chosen.kind === sublayer.kind &&
      chosen.index === sublayer.index && chosen.name === row.name && chosen.board === board;
  }

  /** Go along a trail of edges: the boards move to the layer and cell of its last edge. */
  follow(model, trail) {
    const last = trail[trail.length - 1];
    this.setView({
      trail, trailModel: model, chosen: null, cell: last.cell, layer: Number(last.path.split(".")[1]),
    });
  }

  closeInspector() {
    this.setView({ trail: [], chosen: null });
  }

  togglePlay() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      this.timer = setInterval(() => this.setView({ layer: (this.view.layer + 1) % this.layers }), FRAME);
    }
    byId("play").setAttribute("aria-pressed", String(Boolean(this.timer)));
    setText(byId("play"), this.timer ? "❚❚ Pause" : "▶ Play");
  }

  async share() {
    this.save();
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link to this view is on the clipboard.");
    } catch {
      this.say("The address bar holds the link to this view.");
    }
  }
}

async function start() {
  try {
    const source = new Source();
    const session = await source.session();
    document.title = `${session.title} · Graph Machine explorer`;
    document.body.classList.toggle("is-comparing", session.models.length > 1);
    const app = new App(session, source);
    app.recolour();
    await app.open(readHash(session.layout, location.hash, app.view));
    if (!app.run) {
      const reason = byId("message").textContent;
      if (await app.load(session.examples[0].example)) app.say(`${reason} The first example is shown.`, true);
    }
  } catch (error) {
    byId("message").textContent = error.message;
    byId("message").classList.add("is-error");
  }
}

start();
