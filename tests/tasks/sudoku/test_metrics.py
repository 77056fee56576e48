"""Accuracies, by hand on a tiny case, and the symbolic baselines on real puzzles."""

import json
import math

import numpy as np
import pytest
import torch

from graph_machine.tasks.sudoku.baselines import score_baselines
from graph_machine.tasks.sudoku.metrics import (
    BANDS,
    DATASET_SHARES,
    Accuracy,
    Tally,
    band_counts,
    band_of,
    score,
)

PUZZLES = np.array([[1, 0, 0, 4], [0, 0, 3, 4], [1, 2, 3, 4]], dtype=np.uint8)
SOLUTIONS = np.array([[1, 2, 3, 4]] * 3, dtype=np.uint8)
# Board 0 is right but for a given, which does not count; board 1 has one of two blanks right.
PREDICTIONS = np.array([[9, 2, 3, 4], [1, 9, 3, 4], [1, 2, 3, 4]], dtype=np.uint8)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_by_hand(convert):
    scores = score(convert(PREDICTIONS), convert(PUZZLES), convert(SOLUTIONS))
    assert scores.right.tolist() == [2, 1, 0]
    assert scores.blanks.tolist() == [2, 2, 0]
    tally = Tally()
    tally.add(scores, convert(np.array([0.0, 3.4, np.nan])), convert(np.array([2, 2, 4])))
    assert tally.total == Accuracy(boards=3, boards_right=2, cells=4, cells_right=3)
    assert tally.by_band == {
        "0.0": Accuracy(1, 1, 2, 2),
        "2.1-4.0": Accuracy(1, 0, 2, 1),
        "unrated": Accuracy(1, 1, 0, 0),
    }
    assert tally.by_clues == {2: Accuracy(2, 1, 4, 3), 4: Accuracy(1, 1, 0, 0)}
    plain = tally.as_dict()
    assert plain["board_accuracy"] == 2 / 3
    assert plain["cell_accuracy"] == 3 / 4
    assert list(plain["by_band"]) == ["0.0", "2.1-4.0", "unrated"]
    json.dumps(plain)


def test_batches_add_up():
    whole, parts = Tally(), Tally()
    ratings, clues = np.array([0.0, 1.0, 5.0]), np.array([2, 2, 4])
    whole.add(score(PREDICTIONS, PUZZLES, SOLUTIONS), ratings, clues)
    for row in range(3):
        part = slice(row, row + 1)
        scores = score(PREDICTIONS[part], PUZZLES[part], SOLUTIONS[part])
        parts.add(scores, ratings[part], clues[part])
    assert parts == whole


def test_bands():
    ratings = np.array([0, 1, 2, 2.1, 4, 4.1, 8.5, np.nan], dtype=np.float32)
    assert band_of(ratings).tolist() == [0, 1, 1, 2, 2, 3, 3, 4]
    assert band_counts(ratings[:-1]) == dict(zip(BANDS, (1, 2, 2, 2)))
    assert band_counts(ratings)["unrated"] == 1


def test_nothing_scored():
    assert math.isnan(Accuracy().board)
    assert math.isnan(Accuracy().cell)
    assert math.isnan(Tally().dataset_board)


def test_baselines(sample):
    tallies = score_baselines(sample, batch_size=128)
    exact, singles = tallies["exact solver"], tallies["singles only"]
    assert exact.total.board == exact.total.cell == 1
    assert exact.dataset_board == pytest.approx(1)
    assert singles.by_band["0.0"].board == 1
    assert singles.total.boards_right == (sample.ratings == 0).sum()
    assert singles.dataset_board == pytest.approx(DATASET_SHARES["0.0"])
    assert 0 < singles.by_band["4.1-8.5"].cell < singles.by_band["1.0-2.0"].cell < 1
    few = score_baselines(sample, np.arange(10))
    assert few["exact solver"].total.boards == 10
