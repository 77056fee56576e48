"""The documentation site: what its reference names exists, and its diagrams are up to date."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "graph_machine"


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_start_page_leads_to_every_page() -> None:
    """The table `I want to ...` names every concept, lesson, how-to and result."""
    docs = ROOT / "docs"
    text = read(docs / "index.md")
    linked = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#:]+\.md)\)", text)}
    pages = {*docs.glob("*.md"), *docs.glob("[ct]*/*.md")} - {docs / "index.md"}
    assert {page.resolve() for page in pages} <= linked


def test_pages_link_to_the_paper_where_they_cite_it() -> None:
    link = "https://arxiv.org/abs/2608.06834"
    assert link in read(ROOT / "CITATION.cff")
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        cites = re.search(r"^[^|`#<\n]*\bthe paper\b", read(page), flags=re.I | re.M)
        assert link in read(page) or not cites, page.name


def test_diagrams_are_what_the_script_draws(tmp_path: Path) -> None:
    script = ROOT / "docs" / "diagrams" / "draw.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert drawn
    for file in drawn:
        assert file.read_text() == (ROOT / "docs" / "images" / file.name).read_text(), file.name


def test_moving_picture_is_small_and_moves() -> None:
    picture = ROOT / "docs" / "images" / "growth.svg"
    assert picture.stat().st_size < 600_000
    tree = ElementTree.parse(picture)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}animate"))) > 100


def test_diagrams_are_well_formed() -> None:
    for file in (ROOT / "docs" / "images").glob("*.svg"):
        assert (
            ElementTree.parse(file).getroot().find("{http://www.w3.org/2000/svg}title") is not None
        )
