"""Tasks: the registry, Sudoku as a task, the cache, and a task of one's own."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph_machine.errors import DataError
from graph_machine.files import cache_folder
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.batch import Batch, check_batch
from graph_machine.lab.tasks.rows import Splits
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from support.runs import puzzle_store, tiny


@pytest.fixture
def task() -> SudokuTask:
    return SudokuTask(tiny().task).use(puzzle_store(60), seed=1)


@pytest.mark.parametrize(("box", "side"), [("2x2", 4), ("2x3", 6), ("3x3", 9), ("4x4", 16)])
def test_spec_follows_from_the_box(box: str, side: int) -> None:
    spec = task_of(SudokuConfig(box=box)).spec
    assert (spec.num_tokens, spec.num_outputs, spec.num_nodes) == (side + 1, side, side * side)
    assert spec.alphabet is not None
    assert spec.alphabet[0] == "."
    assert spec.alphabet[1:] == spec.answers
    assert task_of(SudokuConfig(box=box)).label == f"{side}x{side}"


def test_batches_are_a_function_of_seed_and_step(task: SudokuTask) -> None:
    batch, other, again = (task.batch(3, 8, seed=seed) for seed in (1, 2, 1))
    assert torch.equal(batch.answers, again.answers)
    assert not torch.equal(batch.answers, other.answers)
    assert bool((batch.where == (batch.known_tokens == 0)).all())
    given = ~batch.where
    assert torch.equal(batch.answers[given] + 1, batch.known_tokens[given])


def test_splits_cover_the_store_and_scores_count_blanks(task: SudokuTask) -> None:
    seen = [b for split in ("train", "eval", "test") for b in task.split_batches(split, 16)]
    assert sum(len(b) for b in seen) == 60 == sum(task.sizes.values())
    assert sum(len(b) for b in task.split_batches("train", 16, limit=20)) == 20
    batch = seen[0]
    perfect = task.score(batch.answers, batch)
    assert perfect["example_right"].all()
    wrong = batch.answers.clone()
    wrong[~batch.where] = 99  # givens do not count
    place = batch.where[0].nonzero()[0, 0]
    wrong[0, place] += 1
    scores = task.score(wrong, batch)
    assert scores["example_right"].tolist() == [False] + [True] * (len(batch) - 1)
    assert scores["nodes_right"][0] == scores["nodes"][0] - 1


def test_a_store_of_one_row_can_be_tested_on() -> None:
    task = SudokuTask(tiny().task).use(puzzle_store(1), splits=Splits.tests(1))
    assert task.sizes == {"train": 0, "eval": 0, "test": 1}
    assert len(next(task.split_batches("test", 8))) == 1
    with pytest.raises(DataError, match="1 rows"):
        SudokuTask(tiny().task).use(puzzle_store(1))


def test_parts_of_a_batch_keep_what_belongs_to_them() -> None:
    graph = InputGraph(torch.zeros(4, 3, 2).long(), torch.zeros(4, 3, 2).long(), 2)
    mask = torch.ones(4, 3, dtype=torch.bool)
    rows = torch.arange(12).view(4, 3)
    batch = Batch(rows, rows, mask, {"rating": np.arange(4.0)}, graph, mask)
    part = batch[1:3].to(torch.device("cpu"))
    assert len(part) == 2
    assert part.known_tokens.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert part.groups["rating"].tolist() == [1.0, 2.0]
    assert part.known_graph.targets.shape == (2, 3, 2)
    assert part.node_mask is not None
    assert part.node_mask.shape == (2, 3)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPH_MACHINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/graph-machine")
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    monkeypatch.delenv("GRAPH_MACHINE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "graph-machine"


def test_a_set_is_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    made: list[SudokuConfig] = []
    real = SudokuTask.generate

    def count(self: SudokuTask) -> SudokuStore:
        made.append(self.config)
        return real(self)

    monkeypatch.setattr(SudokuTask, "generate", count)
    config = SudokuConfig(box="2x2", puzzles=40)
    with ThreadPoolExecutor(3) as threads:
        stores = list(threads.map(lambda _: SudokuTask(config).generated(), range(3)))
    assert len(made) == 1
    # The same rows as in earlier versions, wherever they are kept.
    assert {store.identity for store in stores} == {"22e3ee304ea34f3397b7e8f9949db07f"}
    for settings in ({"box": "2x3"}, {"puzzles": 50}, {"clues_extra": 2}, {"data_seed": 1}):
        SudokuTask(config.replace(**settings)).generated()
    assert len(made) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.full((2, 16), 5)}, "tokens .* 5 to 5"),
        ({"tokens": torch.full((2, 16), 1.0)}, "tokens .*float32"),
        ({"answers": torch.full((2, 16), -1)}, "answers .* -1 to -1"),
        ({"where": torch.ones(2, 15).bool()}, ".where"),
        ({"where": torch.ones(2, 16)}, ".where.*float32"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_batches_that_do_not_fit_their_spec(changes: dict[str, Any], message: str) -> None:
    spec = task_of(SudokuConfig(box="2x2")).spec
    good = Batch(*(torch.zeros(2, 16).long(),) * 2, torch.ones(2, 16).bool())
    check_batch(good, spec, "The task own")
    with pytest.raises(DataError, match=f"The task own: {message}"):
        check_batch(replace(good, **changes), spec, "The task own")
    with pytest.raises(DataError, match="Tensor"):
        check_batch(good.tokens, spec, "The task own")
