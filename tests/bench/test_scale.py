"""The scale benchmark: measures, writes, reads back, draws, and knows where to stop."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale
from benchmarks.scale import CASES, Measurement, measure_case, plot_rows, run_scale, slope
from graph_machine.errors import ConfigError, TrainingError


def read_rows(path: Path) -> list[Measurement]:
    with open(path, newline="") as file:
        next(file)
        kinds: dict[str, Any] = {"case": str, "n": int, "cpu_seconds": float, "peak_mb": float}
        rows = csv.DictReader(file)
        return [Measurement(*(kind(row[name]) for name, kind in kinds.items())) for row in rows]


@pytest.mark.parametrize("case", list(CASES))
def test_every_case_takes_a_step(case):
    found = measure_case(case, 20, repeats=1)
    assert (found.case, found.n) == (case, 20)
    assert found.cpu_seconds > 0


def fake(case: str, n: int, repeats: int) -> Measurement:
    order = CASES[case][1]
    return Measurement(case, n, 1e-6 * n**order, 0.01 * n)


def test_run_writes_a_table_and_a_plot(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(scale, "measure_apart", fake)
    lines: list[str] = []
    table = run_scale(tmp_path, 16384, limit_seconds=400.0, say=lines.append)
    rows = read_rows(table)
    assert len(rows) == len(lines)
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert max(row.n for row in rows if row.case == "sparse") == 16384
    assert max(row.n for row in rows if row.case == "dense") == 512  # 1,024^3 us is too long
    fitted = slope(rows, "sparse", "cpu_seconds", 64, 16384)
    assert fitted is not None
    assert math.isclose(fitted, 1.0, abs_tol=1e-6)
    assert slope(rows, "dense", "cpu_seconds", 4096, 16384) is None
    plot_rows([Measurement("sparse", 64, 0.1, 0.0)], tmp_path / "plot.png")  # of no points
    assert (tmp_path / "plot.png").exists()


def test_bad_input_and_a_process_that_fails(tmp_path: Path, monkeypatch):
    with pytest.raises(ConfigError, match="'sparce'"):
        measure_case("sparce", 64)
    with pytest.raises(ConfigError, match="max_nodes"):
        run_scale(tmp_path, 3)
    monkeypatch.setattr(scale.sys, "executable", "false")
    with pytest.raises(TrainingError, match="n = 64"):
        scale.measure_apart("sparse", 64, 1)
