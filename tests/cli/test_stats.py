"""`graph-machine stats`."""

import json
from pathlib import Path

import pytest

from graph_machine.cli import run
from graph_machine.errors import ConfigError


def test_stats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["stats", "handmade:2x2", "--limit", "4", "--detect", "4", "--out", str(tmp_path)]
    assert run(command) == 0
    printed = capsys.readouterr().out
    assert "| *GM (paper)* | 15.374 |" in printed
    assert "4x4 board, 6 layers, built by hand" in printed
    text = (tmp_path / "statistics.md").read_text()
    # The hand-built GM has its boxes after layer 1 and its rows and columns after layer 2.
    assert "box 1.00 | row 1.00 | column 1.00" in text
    data = json.loads((tmp_path / "statistics.json").read_text())
    assert data["conditions"][0]["puzzles"] == 4
    for name in ("by-layer.pdf", "by-layer.png", "reach.pdf", "reach.png"):
        assert (tmp_path / name).stat().st_size > 1000


def test_no_detectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "handmade:2x2", "--limit", "2", "--detect", "0"]) == 0
    assert "Regions" not in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["handmade:2x2", "--limit", "0"]])
def test_errors(options: list[str]) -> None:
    with pytest.raises(ConfigError, match="at least"):
        run(["stats", *options])
