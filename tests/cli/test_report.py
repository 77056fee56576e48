"""`graph-machine report` as a user types it."""

import json
import sys
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run
from support.run_folders import make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(3):
        make_run(tmp_path / "runs", "gm", seed, 0.9 + seed / 100)
        make_run(tmp_path / "runs", "transformer", seed, 0.7)
    return tmp_path / "runs"


def test_formats(folder: Path, out_of: OutOf) -> None:
    """Markdown is printed; a file has the format of its ending."""
    printed = out_of(["report", str(folder), "--table", "1"])
    assert "### Table 1: Comparison against baselines" in printed
    assert "Table 2" not in printed
    starts = {"r.md": "# ", "r.html": "<!doctype", "r.csv": "table,", "r.json": "{"}
    for name, start in starts.items():
        assert run(["report", str(folder), "--out", str(folder.parent / name)]) == 0
        assert (folder.parent / name).read_text().startswith(start)
    out = folder.parent / "r.docx"
    with pytest.raises(ConfigError, match="docx"):
        run(["report", str(folder), "--out", str(out)])
    assert not out.exists()
    assert run(["report", str(folder), "--out", str(out), "--format", "csv"]) == 0
    assert out.read_text().startswith("table,")


def test_format_and_curves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = folder.parent / "curves.png"
    assert run(["report", str(folder), "--format", "json", "--curves", str(curves)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["groups"][0]["tables"]
    assert curves.exists()
    assert f"Wrote {curves}" in captured.err
    both = curves.stat().st_size
    assert run(["report", str(folder), "--curves", str(curves), "--against", "steps"]) == 0
    assert curves.stat().st_size < both
    assert capsys.readouterr().out == ""  # curves alone print no report


def test_a_page_without_matplotlib(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["report", str(folder), "--format", "html"]) == 0
    captured = capsys.readouterr()
    assert "<svg" not in captured.out
    assert "no curves in the page" in captured.err


def test_compare(folder: Path, tmp_path: Path, out_of: OutOf) -> None:
    command = ["report", str(folder), "--compare"]
    assert "gm - transformer: +21.0 (95% interval" in out_of([*command, "gm,transformer"])
    for names, message in (
        ("gm", "two"),
        ("gm,gm-rope", "No run of 'gm-rope' here. There are: gm, transformer"),
        ("gm,gm-rop", "Did you mean 'gm-rope'"),
    ):
        with pytest.raises(ConfigError, match=message):
            run([*command, names])
    make_run(tmp_path / "apart", "gm", 0)
    make_run(tmp_path / "apart", "transformer", 1)
    with pytest.raises(ConfigError, match="seed"):
        run(["report", str(tmp_path / "apart"), "--compare", "gm,transformer"])
