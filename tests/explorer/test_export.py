"""The page without a server, and the command that writes it."""

import re

import pytest

from graph_machine.cli import run
from graph_machine.errors import CheckpointError, DataError
from graph_machine.explorer import export, serve
from graph_machine.explorer.export import bundle, embed_json, export_page
from graph_machine.explorer.serve import STATIC
from support.explorer import EASY, session_of


def test_the_bundle_holds_every_module_once() -> None:
    script = bundle()
    for path in STATIC.glob("*.js"):
        assert script.count(f"// {path.name}\n") == 1
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_a_page_is_self_contained(handmade_session, tmp_path) -> None:
    size = export_page(handmade_session, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert size == len(page.encode())
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "http://" not in page
    assert "https://" not in page
    assert page.count('id="cell-0-0-') == 16


def test_large_pages_take_fewer_bits(make_model, tmp_path, monkeypatch) -> None:
    session = session_of(make_model())
    large = export_page(session, tmp_path / "a.html")
    monkeypatch.setattr(export, "HALF_LIMIT", 0)
    assert export_page(session, tmp_path / "b.html") < large


def test_a_page_needs_a_puzzle(handmade_session, tmp_path) -> None:
    with pytest.raises(DataError, match="at least 1 example"):
        export_page(handmade_session, tmp_path / "page.html", samples=0)


def test_no_text_can_end_its_element() -> None:
    assert "</script" not in embed_json("x", {"name": "</script><b>"})[:-9]


def test_the_command_exports(checkpoint, tmp_path, capsys) -> None:
    page = tmp_path / "out" / "page.html"
    code = run(["explore", str(checkpoint), "--compare", str(checkpoint), "--puzzle", EASY,
                "--export", str(page)])  # fmt: skip
    assert code == 0
    assert "opens without a server" in capsys.readouterr().out
    assert EASY in page.read_text(encoding="utf-8")


def test_the_command_serves(checkpoint, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(serve, "serve", lambda session, **options: calls.append(options))
    run(["explore", str(checkpoint), "--puzzle", EASY, "--port", "0", "--no-open"])
    assert calls == [{"host": "127.0.0.1", "port": 0, "open_page": False}]


def test_the_command_names_what_is_wrong(checkpoint, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint or recording"):
        run(["explore", str(tmp_path / "nothing")])
    with pytest.raises(DataError, match="Board of 3 cells"):
        run(["explore", str(checkpoint), "--puzzle", "123"])
