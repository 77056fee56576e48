// Where the numbers come from: the local server, or the page itself (an exported one).

import { Pack } from "./pack.js";

const KEPT_CELLS = 64;

async function failure(response) {
  try {
    const body = await response.json();
    return new Error(body.error || `The server answered ${response.status}.`);
  } catch {
    return new Error(`The server answered ${response.status}.`);
  }
}

async function ask(path, body) {
  const options = { method: "GET", cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The explorer's server does not answer. Is 'graph-machine explore' running?");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** Asks the server that sent this page. */
class ServerSource {
  async session() {
    return (await ask("api/session")).json();
  }

  async draw() {
    return (await ask("api/draw")).json();
  }

  async run(puzzle) {
    return new Pack(await (await ask("api/run", { puzzle })).arrayBuffer());
  }

  async cell(puzzle, model, cell) {
    return new Pack(await (await ask("api/cell", { puzzle, model, cell })).arrayBuffer());
  }
}

async function embedded(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const text = atob(element.textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Reads what `--export` put into this page. */
class EmbeddedSource {
  constructor(session) {
    this.stored = session;
  }

  async session() {
    return this.stored;
  }

  index(puzzle) {
    const text = puzzle.replace(/[\s|+-]/g, "").replace(/0/g, ".").toUpperCase(); // a board, drawn
    const found = this.stored.examples.findIndex((e) => e.puzzle === puzzle || e.puzzle === text);
    if (found < 0) {
      const count = this.stored.examples.length;
      throw new Error(
        `This saved page holds ${count} example${count === 1 ? "" : "s"}; ` +
          "for others run 'graph-machine explore' with a model.",
      );
    }
    return found;
  }

  async run(puzzle) {
    return new Pack(await embedded(`run-${this.index(puzzle)}`));
  }

  async cell(puzzle, model, cell) {
    const data = await embedded(`cell-${this.index(puzzle)}-${model}-${cell}`);
    if (!data) throw new Error("This cell is not part of the saved page.");
    return new Pack(data);
  }
}

/** Remembers the answers of a puzzle, so that going back costs nothing. */
export class Source {
  constructor() {
    const stored = document.getElementById("session");
    this.isLive = !stored;
    this.inner = stored ? new EmbeddedSource(JSON.parse(stored.textContent)) : new ServerSource();
    this.cells = new Map();
  }

  session() {
    return this.inner.session();
  }

  draw() {
    return this.inner.draw();
  }

  run(puzzle) {
    return this.inner.run(puzzle);
  }

  /** One promise per (puzzle, model, cell); failures are forgotten, so that a retry is possible. */
  cell(puzzle, model, cell) {
    const key = `${puzzle}/${model}/${cell}`;
    let found = this.cells.get(key);
    if (!found) {
      found = this.inner.cell(puzzle, model, cell);
      this.cells.set(key, found);
      found.catch(() => this.cells.delete(key));
      if (this.cells.size > KEPT_CELLS) this.cells.delete(this.cells.keys().next().value);
    }
    return found;
  }
}
