// Where the numbers come from: the local server, or the page itself (an exported one).

import { Part, Tensors } from "./tensors.js";

const KEPT_NODES = 64;

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

  async run(example) {
    return new Tensors(await (await ask("api/run", { example })).arrayBuffer());
  }

  async node(example, model, node) {
    return new Part(new Tensors(await (await ask("api/node", { example, model, node })).arrayBuffer()), 0);
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
    this.unpacked = new Map(); // tensors of all nodes, by example and model
  }

  async session() {
    return this.stored;
  }

  index(example) {
    const text = example.replace(/[\s|+-]/g, "").replace(/0/g, ".").toUpperCase(); // a board, drawn
    const found = this.stored.examples.findIndex((e) => e.example === example || e.example === text);
    if (found < 0) {
      const count = this.stored.examples.length;
      throw new Error(
        `This saved page holds ${count} example${count === 1 ? "" : "s"}; ` +
          "for others run 'graph-machine explore' with a model.",
      );
    }
    return found;
  }

  async run(example) {
    return new Tensors(await embedded(`run-${this.index(example)}`));
  }

  async node(example, model, node) {
    const id = `nodes-${this.index(example)}-${model}`;
    if (!this.unpacked.has(id)) this.unpacked.set(id, embedded(id).then((data) => new Tensors(data)));
    const place = this.stored.nodes ? this.stored.nodes.indexOf(node) : node;
    return new Part(await this.unpacked.get(id), place);
  }
}

/** Remembers the answers of an example, so that going back costs nothing. */
export class Source {
  constructor() {
    const stored = document.getElementById("session");
    this.isLive = !stored;
    this.inner = stored ? new EmbeddedSource(JSON.parse(stored.textContent)) : new ServerSource();
    this.nodes = new Map();
  }

  session() {
    return this.inner.session();
  }

  draw() {
    return this.inner.draw();
  }

  run(example) {
    return this.inner.run(example);
  }

  /** One promise per (example, model, node); failures are forgotten, so that a retry is possible. */
  node(example, model, node) {
    const key = `${example}/${model}/${node}`;
    let found = this.nodes.get(key);
    if (!found) {
      found = this.inner.node(example, model, node);
      this.nodes.set(key, found);
      found.catch(() => this.nodes.delete(key));
      if (this.nodes.size > KEPT_NODES) this.nodes.delete(this.nodes.keys().next().value);
    }
    return found;
  }
}
