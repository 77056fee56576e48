"""Habits of the source that no linter knows: nothing dead, nothing cited that is not here."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "graph_machine").rglob("*.py"))
TEXTS = [
    *SOURCES,
    *(ROOT / "tests").rglob("*.py"),
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("*.md"),
]
EXAMPLES = [p for room in ("examples", "benchmarks") for p in (ROOT / room).rglob("*.py")]

# Called by others than our own code.
FOR_OTHERS = {
    "_save_pretrained": "the Hub's mixin",
    "_from_pretrained": "the Hub's mixin",
    "from_json": "users: the way back from to_json",
    "from_entries": "users: sparse addresses of one's own",
}


def defined(path: Path) -> set[str]:
    """Functions, classes and methods, but for those that the language or a registry calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    registered = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.decorator_list]
    nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    names = {n.name for n in nodes if n not in registered}
    return {name for name in names if not re.fullmatch(r"__\w+__", name)}


def test_everything_that_is_defined_is_used() -> None:
    texts = [path.read_text(encoding="utf-8") for path in {*TEXTS, *EXAMPLES}]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in sorted(defined(path))
        if words[name] == 1 and name not in FOR_OTHERS
    ]
    assert not dead


def test_no_page_is_cited_that_is_not_in_the_repository() -> None:
    pattern = re.compile(r"\bSPEC\b[ ,]*(section|sec\.|§)? *\d")
    citing = [path for path in TEXTS if pattern.search(path.read_text(encoding="utf-8"))]
    assert not citing
