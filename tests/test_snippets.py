"""The Python examples of concepts, tutorial and some how-tos run, each page in one namespace."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_machine.registry import Registry

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [
    *(page for folder in ("concepts", "tutorial") for page in sorted((DOCS / folder).glob("*.md"))),
    DOCS / "own-graphs.md",
]


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is gone after it."""
    found = [thing for thing in gc.get_objects() if type(thing) is Registry]
    before = [dict(registry._items) for registry in found]
    yield
    for registry, items in zip(found, before, strict=True):
        registry._items.clear()
        registry._items.update(items)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    text = page.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        exec(compile(code, page.name, "exec"), names)
