"""One page that needs no server: the same static files, with styles, scripts and data inside."""

import base64
import gzip
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

from graph_machine.errors import DataError
from graph_machine.explorer.pack import Precision
from graph_machine.explorer.pictures import size_of
from graph_machine.explorer.serve import STATIC
from graph_machine.explorer.session import Session
from graph_machine.files import write_text

# Above this many bytes of halves a page holds 255 steps per board instead.
HALF_LIMIT = 48 * 1024**2
_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./(\w+\.js)";\n', re.MULTILINE)
_NAME = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def bundle(entry: str = "main.js") -> str:
    """All modules as one script, each after those that it imports.

    Modules cannot be loaded from file://, so their imports and exports are taken away and they
    share one scope; that needs every top-level name to be there once, which is checked.
    """
    done: list[str] = []
    parts: list[str] = []
    owners: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        done.append(name)
        text = (STATIC / name).read_text(encoding="utf-8")
        for needed in _IMPORT.findall(text):
            add(needed)
        for found in _NAME.findall(text):
            assert found not in owners, f"{found} is in {owners[found]} and in {name}"
            owners[found] = name
        body = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)
        assert not re.search(r"^(import|export)\b", body, re.MULTILINE), f"{name}: import style"
        parts.append(f"// {name}\n{body}")

    add(entry)
    return "\n".join(parts)


def embed(identity: str, data: bytes) -> str:
    """Bytes as an element of the page, compressed; the browser unpacks them when they are shown."""
    text = base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode()
    return f'<script type="text/plain" id="{identity}">{text}</script>'


def embed_json(identity: str, value: object) -> str:
    # `<` as an escape, so that no text of ours can end the element.
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{identity}">{text}</script>'


def page_precision(session: Session, keys: Sequence[str]) -> Precision:
    """Halves where the page stays small, else 255 steps."""
    total = sum(session.run(key).num_bytes for key in keys)
    return "f2" if total <= HALF_LIMIT else "u8"


def export_page(session: Session, path: str | Path, *, samples: int = 1) -> int:
    """Write a self-contained page with the first `samples` examples; returns its size in bytes.

    >>> from graph_machine.explorer.session import open_session
    >>> session = open_session(["gm-4x4"], puzzles=["..3...4..4...2.."])
    >>> export_page(session, "page.html") == Path("page.html").stat().st_size
    True
    """
    if samples < 1:
        raise DataError(f"A page needs at least 1 example, got {samples}.")
    chosen = session.examples.listed[:samples]
    keys = [example.key for example in chosen]
    about = session.describe(live=False)
    about["examples"] = [example.to_json() for example in chosen]
    precision = page_precision(session, keys)
    elements = [embed_json("session", about)]
    for number, key in enumerate(keys):
        elements.append(embed(f"run-{number}", session.run_pack(key, precision)))
        elements += [
            embed(f"cell-{number}-{model}-{cell}", session.cell_pack(key, model, cell, precision))
            for model in range(len(session.subjects))
            for cell in about["cells"] or range(size_of(chosen[number].batch))
        ]
    text = assemble(str(about["title"]), elements)
    write_text(path, text)
    return len(text.encode())


def assemble(title: str, elements: Sequence[str]) -> str:
    """index.html with its links replaced by what they point to."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    script = bundle()
    assert "</script" not in script, "a script must not hold its own end"
    parts = {
        '<link rel="stylesheet" href="static/style.css">': f"<style>\n{style}</style>",
        '<script type="module" src="static/main.js"></script>': (
            "\n".join(elements) + f'\n<script type="module">\n{script}</script>'
        ),
        "<title>Graph Machine explorer</title>": f"<title>{html.escape(title)}</title>",
    }
    for old, new in parts.items():
        assert page.count(old) == 1, f"index.html should hold {old} once"
        page = page.replace(old, new)
    return page
