"""`graph-machine demo` in a few steps."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import OutOf
from graph_machine.lab.cli import demo as demo_module
from graph_machine.lab.cli._options import Demo
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from support.runs import puzzle_store, tiny


@pytest.mark.slow
def test_demo_trains_compares_solves_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_of: OutOf
) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(demo_module.BOARDS, "puzzles", 200)
    out = tmp_path / "demo"
    text = out_of(["demo", "--steps", "3", "--out", str(out), "--progress", "none"])
    for part in (
        "5x5 jigsaw",
        "jigsaw-transformer",
        "exact solver",
        "Confidence",
        "edges.png",
        "All in",
    ):
        assert part in text
    assert (out / "edges.png").read_bytes().startswith(b"\x89PNG")


def test_the_number_of_steps_fits_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cost:
        seconds_per_step = 0.5

    monkeypatch.setattr("graph_machine.lab.cli.demo.measure_cost", lambda *_, **__: Cost())
    monkeypatch.setattr(demo_module.time, "perf_counter", lambda: 25.0)
    task = SudokuTask(tiny().task).use(puzzle_store(30))

    def steps(**options: Any) -> int:
        return demo_module.fitting_steps(Demo(tmp_path, device="cpu", **options), task, start=0.0)

    assert steps(seconds=225.0) == 150
    assert steps(seconds=1e6) == 500
    assert steps(seconds=30.0) == 50
    assert steps(steps=7) == 7
