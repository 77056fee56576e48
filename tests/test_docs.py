"""The docs name real files and names, and speak of nothing that does not exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "graph_machine"


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("page", ["docs/paper-map.md", "ARCHITECTURE.md"])
def test_pages_name_what_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = []
    for reference in re.findall(r"`([a-z_]+(?:/[\w.]+)*(?:\.py)?(?:::[\w.]+)?)`", text):
        path, _, name = reference.partition("::")
        if "/" not in path and not path.endswith(".py"):
            continue
        file = ROOT / path if path.startswith("tests/") else PACKAGE / path
        if "/" not in path:  # a file by its name alone, in whatever room
            file = next(PACKAGE.rglob(path), file)
        if not file.exists() or (name and name.split(".")[-1] not in names_in(file)):
            missing.append(reference)
    assert not missing


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    return [link for link in found if "://" not in link]


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page) if not (page.parent / link).exists()]
    assert not broken
