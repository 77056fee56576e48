"""The suite that measures what rounds cost."""

import math
from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.cases import Case, build
from benchmarks.render import Stamp
from benchmarks.rounds import Figure


def test_core_layer_has_its_contestants() -> None:
    steps = build(Case("core-layer", n=4, k=2, batch=1)).steps
    assert {"reference", "fused", "transformer", "without-edges"} <= set(steps)
    for step in steps.values():
        step()


def test_ratio_is_of_the_core_layer_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Row:
        failed = ""

        def __init__(self, contestant: str, to_fused_cpu: float | None) -> None:
            self.contestant, self.to_fused_cpu = contestant, to_fused_cpu

    rows = [Row("fused", None), Row("transformer", 0.5), Row("without-edges", 0.8)]
    monkeypatch.setattr(rounds, "time_case", lambda case, turns: rows)
    assert [figure.value for figure in rounds.core_layer(3)] == [2.0, 1.25]


def test_memory_does_not_grow_with_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truncated gradients: eight times the rounds take hardly more."""
    monkeypatch.setattr(rounds, "BATCH", 2)
    few, many = rounds.memory(8).value, rounds.memory(64).value
    assert not math.isnan(few)
    assert many < 1.3 * few + 10


def test_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rounds, "core_layer", lambda turns: [Figure("core", 1.0, "ratio", "1.3")])
    monkeypatch.setattr(rounds, "solving", lambda turns: [Figure("one", 40.0, "ms", "50")])
    monkeypatch.setattr(rounds, "memory", lambda r: Figure(f"{r} rounds", 200.0, "MB"))
    said: list[str] = []
    path = rounds.run_rounds(tmp_path / "new", 1, said.append)
    assert path.name.startswith("rounds_")
    assert "| one | 40.00 | ms | 50 |" in path.read_text()
    assert len(said) == 2 + len(rounds.MEMORY_ROUNDS)
    stamp = Stamp("rounds", "2026-01-01", {}, {"cpu": "A (R) 9/2", "threads": 1})
    assert stamp.slug == "a-r-9-2-1-threads"
