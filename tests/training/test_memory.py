"""A step that will not fit into memory is refused with a line, before the system ends the run."""

from pathlib import Path

import pytest
import torch

from graph_machine.errors import TrainingError
from graph_machine.lab.cli import run
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import cost
from graph_machine.machine import free_memory
from support.runs import puzzle_store, tiny, write_puzzles

CPU = torch.device("cpu")


def test_the_estimate_is_what_a_step_takes() -> None:
    config = tiny(batch_size=24, accumulate=2)
    task = SudokuTask(config.task).use(puzzle_store())
    need = cost.expected_memory(config, task, seed=0, device=CPU)
    halves = config.with_train(batch_size=12, accumulate=1)
    measured = cost.measure_cost(halves, task, seed=0, device=CPU, steps=1)
    assert need == pytest.approx(measured.memory_bytes, rel=0.02)
    shared = cost.expected_memory(config, task, seed=0, device=CPU, processes=2)
    assert measured.weights_bytes < shared < need


def test_a_batch_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(write_puzzles(tmp_path / "puzzles.store"))
    monkeypatch.setattr(cost, "free_memory", lambda device: 2**20)
    words = ["train", "gm", "--budget", "smoke", "--steps", "1", "--data", data]
    words += ["--progress", "none", "--out", str(tmp_path / "run"), "--device", "cpu"]
    line = r"A step of \d+ puzzles needs about \d+ MiB on cpu, and 1 MiB are free: use a smaller"
    for more in ([], ["--dry-run"]):
        with pytest.raises(TrainingError, match=line):
            run([*words, *more])
    assert not (tmp_path / "run" / "run.json").exists()
    assert run([*words, "--ignore-memory"]) == 0


@pytest.mark.parametrize(
    ("condition", "setting", "message"),
    [
        ("pointers-gm", "nodes", r"A step of \d+ graphs needs about [\d,]+ MiB"),
        ("pointers-transformer", "nodes", r"A step of \d+ graphs needs about [\d,]+ MiB"),
        ("algorithms-transformer", "train_nodes", r"Making graphs of this size takes [\d,]+ MiB"),
        ("algorithms-transformer", "test_nodes", r"Making graphs of this size takes [\d,]+ MiB"),
    ],
)
def test_huge_examples_are_refused_before_one_is_made(
    condition: str, setting: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "free_memory", lambda device: 2**34)
    words = ["train", condition, "--budget", "smoke", "--out", str(tmp_path / "run")]
    words += ["--device", "cpu", "--set", f"task.{setting}=1000000"]
    for more in ([], ["--dry-run"]):
        with pytest.raises(TrainingError, match=message):
            run([*words, *more])


def test_free_memory() -> None:
    free = free_memory(CPU)
    assert free is None or 2**20 < free < 2**50
    assert free_memory(torch.device("meta")) is None
