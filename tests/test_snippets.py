"""The Python examples of concepts, tutorial and some how-tos run, each page in one namespace."""

import re
from pathlib import Path

import pytest

from support.registries import registries

__all__ = ["registries"]  # a fixture

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [
    *(page for folder in ("concepts", "tutorial") for page in sorted((DOCS / folder).glob("*.md"))),
    DOCS / "own-graphs.md",
]


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    text = page.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        exec(compile(code, page.name, "exec"), names)
