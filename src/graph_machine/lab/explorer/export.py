"""One page that needs no server: the same static files, with styles, scripts and data inside."""

import base64
import gzip
import html
import json
from collections.abc import Sequence
from pathlib import Path

from graph_machine.errors import DataError
from graph_machine.files import refuse_to_replace, write_text
from graph_machine.lab.explorer.forward import Precision
from graph_machine.lab.explorer.session import Session
from graph_machine.lab.records.naming import FACTORS

STATIC = Path(__file__).parent / "static"
# Above this many bytes of halves a page holds 255 steps per board instead,
HALF_LIMIT = 48 * 1024**2
# and above this many it is refused: a browser takes minutes to open it.
PAGE_LIMIT = 512 * 1024**2
# Nothing is loaded from anywhere: scripts are in the page, as text or as data: URLs.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def module_map() -> str:
    """All modules as an import map of data: URLs, and the line that starts them.

    Modules cannot be loaded from file://. A data: URL has no folder, so `./board.js` becomes the
    name `explorer/board.js`, which the map knows.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
    urls = {}
    for name, text in texts.items():
        code = base64.b64encode(text.replace('from "./', 'from "explorer/').encode()).decode()
        urls[f"explorer/{name}"] = f"data:text/javascript;base64,{code}"
    return (
        f'<script type="importmap">{json.dumps({"imports": urls})}</script>\n'
        f'<script type="module">import "explorer/main.js";</script>'
    )


def embed(identity: str, data: bytes) -> str:
    """Bytes as an element of the page, compressed; the browser unpacks them when they are shown."""
    text = base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode()
    return f'<script type="text/plain" id="{identity}">{text}</script>'


def embed_json(identity: str, value: object) -> str:
    # `<` as an escape, so that no text of ours can end the element.
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{identity}">{text}</script>'


def page_precision(session: Session, keys: Sequence[str]) -> Precision:
    """Halves if the page stays small, else 255 steps."""
    total = sum(forward.page_bytes for key in keys for forward in session.run(key).forwards)
    if total > PAGE_LIMIT:
        raise DataError(
            f"The page would hold {total / 1e6:,.0f} MB, and at most {PAGE_LIMIT / 1e6:,.0f} MB "
            f"are possible; choose fewer --samples or --rounds, or a smaller example."
        )
    return "f2" if total <= HALF_LIMIT else "u8"


def export_page(
    session: Session,
    path: str | Path,
    *,
    samples: int = 1,
    precision: Precision | None = None,
    factors: bool = True,
    force: bool = False,
) -> int:
    """Write a self-contained page with the first `samples` examples; returns its size in bytes.

    A file that is there already is replaced with `force` only. `precision` is `f2` (half
    precision) or `u8` (255 steps per board); by default the size decides. Without `factors` (the
    scores of single experts) a page takes half the room.

    >>> from graph_machine.lab.explorer.session import open_session
    >>> session = open_session(["gm-4x4"], examples=["..3...4..4...2.."])
    >>> export_page(session, "page.html") == Path("page.html").stat().st_size
    True
    """
    if samples < 1:
        raise DataError(f"A page needs at least 1 example, got {samples}.")
    refuse_to_replace(path, force)
    chosen = session.examples.listed[:samples]
    keys = [example.key for example in chosen]
    about = session.describe(live=False)
    about["examples"] = [example.to_json() for example in chosen]
    precision = page_precision(session, keys) if precision is None else precision
    left_out = () if factors else FACTORS
    for model in about["models"]:
        for sublayer in model["sublayers"]:
            sublayer["names"] = [name for name in sublayer["names"] if name not in left_out]
    elements = [embed_json("session", about)]
    for number, key in enumerate(keys):
        nodes = about["nodes"] or range(chosen[number].nodes)
        elements.append(embed(f"run-{number}", session.run_pack(key, precision)))
        for model in range(len(session.subjects)):
            held = session.nodes_pack(key, model, nodes, left_out, precision)
            elements.append(embed(f"nodes-{number}-{model}", held))
    text = assemble(str(about["title"]), elements)
    write_text(path, text)
    return len(text.encode())


def assemble(title: str, elements: Sequence[str]) -> str:
    """index.html with the linked files in place of the links."""
    page, style = (
        (STATIC / name).read_text(encoding="utf-8") for name in ("index.html", "style.css")
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    scripts = "\n".join([*elements, module_map()])
    parts = {
        '<link rel="stylesheet" href="static/style.css">': f"{policy}\n<style>\n{style}</style>",
        '<script type="module" src="static/main.js"></script>': scripts,
        "<title>Graph Machine explorer</title>": f"<title>{html.escape(title)}</title>",
    }
    for old, new in parts.items():
        assert page.count(old) == 1, f"index.html should hold {old} once"
        page = page.replace(old, new)
    return page
