"""The page without a server, the command that writes it, and the live pages of the docs."""

import re
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.explorer import export, serve
from graph_machine.lab.explorer.export import STATIC, embed_json, export_page, module_map
from support.browser import browser_marks
from support.explorer import EASY


def test_every_import_of_a_module_is_in_the_map() -> None:
    """Modules import `./name.js` in one spelling, and a page holds all of them."""
    page = module_map()
    for path in STATIC.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        names = re.findall(r'\bfrom "([^"]+)"', text)
        assert len(names) == len(re.findall(r"^import\b|^} from\b", text, re.MULTILINE)) - len(
            re.findall(r"^import \{$", text, re.MULTILINE)
        )
        assert all(f'"explorer/{name.removeprefix("./")}"' in page for name in names)


def test_a_page_is_self_contained(handmade_session, tmp_path, monkeypatch) -> None:
    size = export_page(handmade_session, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert size == len(page.encode())
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "http://" not in page
    assert "https://" not in page
    assert page.count('id="nodes-0-0"') == 1
    assert "</script" not in embed_json("x", {"name": "</script><b>"})[:-9]
    monkeypatch.setattr(export, "HALF_LIMIT", 0)  # large pages take fewer bits
    assert export_page(handmade_session, tmp_path / "b.html") < size
    with pytest.raises(DataError, match="example"):
        export_page(handmade_session, tmp_path / "none.html", samples=0)


def test_the_command_exports(checkpoint, tmp_path, capsys) -> None:
    page = tmp_path / "out" / "page.html"
    code = run(["explore", str(checkpoint), "--compare", str(checkpoint), "--puzzle", EASY,
                "--export", str(page)])  # fmt: skip
    assert code == 0
    assert "opens without a server" in capsys.readouterr().out
    assert EASY in page.read_text(encoding="utf-8")
    page.write_text("mine")
    again = ["explore", str(checkpoint), "--puzzle", EASY, "--export", str(page)]
    with pytest.raises(ConfigError, match="--force"):
        run(again)
    assert page.read_text() == "mine"
    assert run([*again, "--force"]) == 0
    assert EASY in page.read_text(encoding="utf-8")


def test_the_command_serves(checkpoint, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(serve, "serve", lambda session, **options: calls.append(options))
    run(["explore", str(checkpoint), "--puzzle", EASY, "--port", "0", "--no-open"])
    assert calls == [{"host": "127.0.0.1", "port": 0, "open_page": False}]
    with pytest.raises(DataError, match="3 cells"):
        run(["explore", str(checkpoint), "--puzzle", "123"])


LIVE = Path(__file__).parents[2] / "docs" / "_static" / "live"
PAGES = ["maze", "pointers", "rounds", "sudoku"]


def test_the_page_links_to_all_of_them() -> None:
    text = (LIVE.parents[1] / "live.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"live/(\w+)\.html", text)) == PAGES
    assert sorted(path.stem for path in LIVE.iterdir()) == PAGES
    assert all(path.stat().st_size < 700_000 for path in LIVE.iterdir())


@browser_marks[0]
@browser_marks[1]
@pytest.mark.parametrize("name", PAGES)
def test_they_run_without_a_server(open_page, name: str) -> None:
    """`open_page` fails on script errors and on requests to anywhere else."""
    page = open_page((LIVE / f"{name}.html").as_uri())
    assert re.search(r"answers (right|break)", page.locator(".verdict").inner_text())
    if name != "maze":  # its edges stay as they are
        page.locator(".new-edges button").nth(1).click()
        page.wait_for_selector(".parts")
