// The example: its boards with predictions, the choice of the source, ways to enter one, and what
// rounds of a recurrent core did to it.

import { cellAt, cellName, drawExample, fillKey } from "./board.js";
import { byId, make, setLabel, setText } from "./dom.js";
import { hoverNode, stepNode } from "./nodes.js";

const MOST_NAMED = 3; // rounds that are named one by one

/** The round (from 0) that a layer of the page belongs to; null before the first. */
function roundAt(rounds, layer) {
  if (!rounds || layer < rounds.first) return null;
  return Math.min(rounds.answers.length - 1, Math.floor((layer - rounds.first) / rounds.coreLayers));
}

/** Whether a cell's right answer was given up, up to a round; null: in any round. */
function isUndone(rounds, cell, round) {
  const lost = rounds?.undone?.[cell] ?? [];
  return lost.some((number) => round === null || number <= round + 1);
}

/** `decided in round 7; undone in round 4`; nothing for a model without rounds. */
function cellHistory(rounds, cell) {
  if (!rounds) return "";
  const lost = rounds.undone?.[cell] ?? [];
  const decided = `decided in round ${rounds.decided[cell]}`;
  if (!lost.length) return decided;
  if (lost.length > MOST_NAMED) return `${decided}; undone ${lost.length} times, last in round ${lost.at(-1)}`;
  return `${decided}; undone in round${lost.length > 1 ? "s" : ""} ${lost.join(", ")}`;
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const TYPING_PAUSE = 150; // milliseconds between a typed digit and the forward pass

/** The cell one step away, staying on the board; null if the key is not an arrow. */
export function stepCell(layout, cell, key) {
  if (!ARROWS[key]) return null;
  const [down, right] = ARROWS[key];
  if (layout.kind === "nodes") return stepNode(layout, cell, ARROWS[key]);
  const row = Math.min(layout.rows - 1, Math.max(0, Math.floor(cell / layout.cols) + down));
  const col = Math.min(layout.cols - 1, Math.max(0, (cell % layout.cols) + right));
  return Math.min(layout.nodes - 1, row * layout.cols + col);
}

export class ExamplePane {
  constructor(app) {
    this.app = app;
    this.boards = app.session.models.map((model, index) => this.board(model, index));
    byId("example-panes").append(...this.boards.map((board) => board.element));
    this.entry = byId("example-text");
    byId("example-form").addEventListener("submit", (event) => {
      event.preventDefault();
      app.load(this.entry.value);
    });
    this.examples();
    byId("random").addEventListener("click", () => app.random());
    byId("random").hidden = !app.session.canDraw;
    byId("run").hidden = !app.session.canRun;
    this.entry.readOnly = !app.session.canRun;
    setText(byId("typing-hint"), ["type or paste", app.session.hint].filter(Boolean).join("; "));
    byId("typing-hint").hidden = !app.session.canRun;
    fillKey(byId("key"), app.session);
  }

  examples() {
    const select = byId("examples");
    const { examples } = this.app.session;
    examples.forEach((example, i) => select.append(make("option", { value: String(i) }, example.label)));
    select.addEventListener("change", () => {
      if (select.value !== "") this.app.load(examples[Number(select.value)].example);
    });
  }

  board(model, index) {
    const canvas = make("canvas", { class: "example", tabindex: "0", role: "img" });
    const verdict = make("p", { class: "verdict" });
    canvas.addEventListener("click", (event) => {
      const cell = cellAt(canvas, this.app.session.layout, event);
      if (cell !== null) this.app.setView({ cell });
    });
    canvas.addEventListener("pointermove", (event) => this.hover(event, canvas, index));
    canvas.addEventListener("pointerleave", () => {
      this.app.tooltip.hide();
      hoverNode(null, null);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    const candidates = make("div", { class: "candidates" });
    const when = make("p", { class: "when" });
    const several = this.app.session.models.length > 1;
    const element = make("div", { class: "example-block" },
      several ? make("h3", {}, model.name) : null, canvas, verdict, candidates, when);
    return { canvas, verdict, candidates, when, element };
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { layout, symbols, blank, canRun } = this.app.session;
    const moved = stepCell(layout, this.app.view.cell, event.key);
    if (moved !== null) {
      this.app.setView({ cell: moved });
    } else if (canRun && symbols) {
      const isClear = ["Backspace", "Delete", "0", "."].includes(event.key);
      const value = isClear ? Math.max(0, symbols.indexOf(blank)) : event.key.length === 1 ? symbols.indexOf(event.key.toUpperCase()) : -1;
      if (value < 0) return;
      this.type(value);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Put a digit into the source cell; the model runs when typing pauses. */
  type(value) {
    const { symbols } = this.app.session;
    const text = [...this.entry.value.replace(/\s/g, "")];
    text[this.app.view.cell] = symbols[value];
    this.entry.value = text.join("");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.app.load(this.entry.value), TYPING_PAUSE);
  }

  /** Answers of a model where the page stands: after the round that is shown, or in the end. */
  found(model) {
    const { run, view } = this.app;
    const found = run.header.models[model];
    const sure = run.get(`${model}/confidences`)?.values;
    const { rounds } = found;
    const round = roundAt(rounds, view.layer);
    if (round === null) return { ...found, sure, round };
    const last = rounds.answers.length - 1;
    const wrong = rounds.wrong[round];
    const count = run.header.asked.filter(Boolean).length;
    const right = !wrong ? "" : run.header.solution
      ? `: ${count - wrong.length} of ${count} answers right` : `: ${wrong.length} answers break the rules`;
    return {
      ...found, answers: rounds.answers[round], sure: rounds.confidences[round], wrong, round,
      verdict: `After round ${round + 1} of ${last + 1}${right}`,
    };
  }

  /** What stands in every cell: {text, question, mark, isGiven, isWrong, isUndone, confidence}. */
  cells(model) {
    const { run, session } = this.app;
    const found = this.found(model);
    const wrong = new Set(found.wrong ?? []);
    return Array.from({ length: session.layout.nodes }, (_, cell) => {
      const isGiven = !run.header.asked[cell];
      const text = isGiven ? run.header.tokens[cell] : found.answers?.[cell] ?? "";
      return {
        text,
        question: isGiven ? "" : run.header.questions?.[cell] ?? "",
        mark: session.marks[text]?.drawn ?? null,
        isGiven,
        isWrong: wrong.has(cell),
        isUndone: isUndone(found.rounds, cell, found.round),
        confidence: isGiven || !found.sure ? null : found.sure[cell],
      };
    });
  }

  hover(event, canvas, model) {
    const { session, run } = this.app;
    const cell = cellAt(canvas, session.layout, event);
    hoverNode(canvas, cell);
    if (cell === null || !run) return this.app.tooltip.hide();
    const { text, question, isGiven, isWrong, confidence } = this.cells(model)[cell];
    const name = cellName(session.layout, cell);
    if (isGiven || !text) this.app.tooltip.show(event, `${name}: ${isGiven ? `given ${text}` : "no answer"}`);
    else {
      const sure = confidence === null ? "" : `, ${(100 * confidence).toFixed(1)}% sure`;
      const when = cellHistory(run.header.models[model].rounds, cell);
      const should = run.header.solution && isWrong ? `; should be ${run.header.solution[cell]}` : "";
      this.app.tooltip.show(event, `${name}: ${question && `after ${question}, `}predicted ${text}${sure}${should}${when && `; ${when}`}`);
    }
  }

  measure() {
    for (const board of this.boards) board.size = board.canvas.clientWidth;
  }

  draw(view, colours) {
    const { session, run } = this.app;
    this.boards.forEach((board, model) => {
      const cells = this.cells(model);
      if (board.size) {
        drawExample(board.canvas, session.layout, cells, { size: board.size, mark: view.cell, colours });
      }
      setLabel(board.canvas, `Example, source ${cellName(session.layout, view.cell)}. Arrow keys move it` +
        (session.canRun && session.symbols ? ", characters change it." : "."));
      const found = this.found(model);
      setText(board.verdict, found.verdict);
      board.verdict.classList.toggle("is-wrong", (found.wrong ?? []).length > 0);
      this.drawCandidates(board.candidates, model, view.cell);
      board.when.hidden = !found.rounds;
      const when = run.header.asked[view.cell] ? cellHistory(found.rounds, view.cell) : "given";
      setText(board.when, `${cellName(session.layout, view.cell)}: ${when}`);
    });
    const givenKey = byId("key-given-entry");
    if (givenKey) givenKey.hidden = run.header.asked.every(Boolean);
    byId("key-undone").hidden = !run.header.models.some((model) => model.rounds?.undone);
    setText(byId("notes"), run.header.notes.join(" "));
    const picked = session.examples.findIndex((example) => example.example === run.header.example);
    byId("examples").value = picked < 0 ? "" : String(picked);
  }

  /** The probability of each answer in the source cell. */
  drawCandidates(element, model, cell) {
    const { run, session } = this.app;
    const chances = session.answerNames ? run.slice(`${model}/probabilities`, cell) : null;
    element.hidden = !chances;
    if (!chances) return;
    const nameOf = (i) => session.marks[session.answerNames[i]]?.word || session.answerNames[i];
    if (element.children.length !== chances.length) {
      element.replaceChildren(...Array.from(chances, (_, i) =>
        make("span", { class: "candidate" }, make("i", {}), make("b", {}, nameOf(i)))));
    }
    chances.forEach((chance, i) => {
      const item = element.children[i];
      item.firstChild.style.setProperty("--chance", chance.toFixed(4));
      item.title = `${nameOf(i)}: ${(100 * chance).toFixed(1)}%`;
    });
    setLabel(element, `Probabilities in ${cellName(session.layout, cell)}`);
  }
}
