"""Scores and metrics, by hand on a tiny case, and the symbolic baselines on real puzzles."""

import json

import numpy as np
import pytest
import torch

from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.base import baseline_scores, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.rows import Splits
from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from graph_machine.lab.tasks.sudoku.task import SudokuTask

TASK = task_of(SudokuConfig(box="2x2"))
PUZZLES = torch.tensor([[1, 0, 0, 4], [0, 0, 3, 4], [1, 2, 3, 4]])
SOLUTIONS = torch.tensor([[1, 2, 3, 4]] * 3)
# Board 0 is right but for a given, which does not count; board 1 has one of two blanks right.
PREDICTIONS = torch.tensor([[9, 2, 3, 4], [1, 9, 3, 4], [1, 2, 3, 4]])


def test_by_hand() -> None:
    groups = {"rating": np.array([0.0, 3.4, np.nan]), "clues": np.array([2, 2, 4])}
    batch = Batch(PUZZLES, SOLUTIONS - 1, PUZZLES == 0, groups)
    columns = TASK.score(PREDICTIONS - 1, batch)
    assert columns["nodes_right"].tolist() == [2, 1, 0]
    assert columns["nodes"].tolist() == [2, 2, 0]
    values = {name: column.numpy().astype(float) for name, column in columns.items()}
    scores = Scores(values, groups, TASK.metrics)
    whole = {"examples": 3, "board_accuracy": 2 / 3, "cell_accuracy": 3 / 4}
    assert scores.summary() == whole
    rating, clues = TASK.groupings
    assert scores.by(rating) == {
        "0.0": {"examples": 1, "board_accuracy": 1.0, "cell_accuracy": 1.0},
        "2.1-4.0": {"examples": 1, "board_accuracy": 0.0, "cell_accuracy": 0.5},
    }
    assert scores.by(clues) == {
        "2": {"examples": 2, "board_accuracy": 0.5, "cell_accuracy": 0.75},
        "4": {"examples": 1, "board_accuracy": 1.0, "cell_accuracy": None},
    }
    json.dumps(scores.by(clues))


def test_bands() -> None:
    ratings = np.array([0, 1, 2, 2.1, 4, 4.1, 8.5, np.nan], dtype=np.float32)
    bands = TASK.groupings[0].rows(ratings)
    assert [int(rows.sum()) for rows in bands.values()] == [1, 2, 2, 2]


def test_baselines(sample: SudokuStore) -> None:
    task = SudokuTask(SudokuConfig()).use(sample, splits=Splits.tests(len(sample)))
    found = baseline_scores(task, "test")
    exact, singles = found["exact solver"].summary(), found["singles only"].summary()
    assert exact["board_accuracy"] == exact["cell_accuracy"] == 1
    bands = found["singles only"].by(task.groupings[0])
    assert bands["0.0"]["board_accuracy"] == 1
    assert singles["board_accuracy"] == pytest.approx((sample.ratings == 0).mean())
    assert 0 < bands["4.1-8.5"]["cell_accuracy"] < bands["1.0-2.0"]["cell_accuracy"] < 1
    assert len(baseline_scores(task, "test", 10)["exact solver"]) == 10
