"""`graph-machine report` as a user types it."""

import json
import sys
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from support.run_folders import make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(3):
        make_run(tmp_path / "runs", "gm", seed, 0.9 + seed / 100)
        make_run(tmp_path / "runs", "transformer", seed, 0.7)
    return tmp_path / "runs"


def test_prints_markdown(folder: Path, out_of: OutOf) -> None:
    out = out_of(["report", str(folder), "--table", "1"])
    assert "### Table 1: Comparison against baselines" in out
    assert "Table 2" not in out


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.md", "# "), ("r.html", "<!doctype"), ("r.csv", "table,"), ("r.json", "{")],
)
def test_writes_the_format_of_the_ending(folder: Path, name: str, start: str) -> None:
    out = folder.parent / name
    assert run(["report", str(folder), "--out", str(out)]) == 0
    assert out.read_text().startswith(start)


def test_an_ending_that_is_no_format_is_refused(folder: Path) -> None:
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


def test_a_page_without_matplotlib(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["report", str(folder), "--format", "html"]) == 0
    captured = capsys.readouterr()
    assert "<svg" not in captured.out
    assert "no curves in the page" in captured.err


def test_compare(folder: Path, out_of: OutOf) -> None:
    assert "gm - transformer: +21.0 (95% interval" in out_of(
        ["report", str(folder), "--compare", "gm,transformer"]
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("gm", "--compare takes two conditions"),
        ("gm,gm-rope", "No run of 'gm-rope' here. There are: gm, transformer"),
        ("gm,gm-rop", "Did you mean 'gm-rope'"),
    ],
)
def test_compare_says_what_is_wrong(folder: Path, names: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(["report", str(folder), "--compare", names])


def test_no_seed_in_common(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", 0)
    make_run(tmp_path, "transformer", 1)
    with pytest.raises(ConfigError, match="seed"):
        run(["report", str(tmp_path), "--compare", "gm,transformer"])


def test_damaged_runs_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cpu" / "gm" / "seed-1" / "run.json").write_text("{")
    assert run(["report", str(folder)]) == 0
    assert "not counted: run.json is damaged" in capsys.readouterr().err


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="runs"):
        run(["report", str(tmp_path)])
