"""Ratings, against those of the real data."""

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.sudoku.augment import Augment
from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board
from graph_machine.lab.tasks.sudoku.solve import rate


def test_against_the_data_set(sample):
    """0 exactly where the file says 0.0; on the rest a Pearson correlation of 0.9 or more."""
    ratings = rate(sample.puzzles, sample.box, sample.solutions)
    zero = sample.ratings == 0
    assert ((ratings == 0) == zero).all()
    assert (ratings[~zero] >= 1).all()
    assert np.corrcoef(ratings[~zero], sample.ratings[~zero])[0, 1] >= 0.9


def test_same_for_any_number_of_workers(sample):
    puzzles = np.concatenate([sample.puzzles] * 3)
    told = []
    first = rate(puzzles, sample.box, seed=3, attempts=4)
    second = rate(puzzles, sample.box, seed=3, attempts=4, workers=2, progress=told.append)
    assert (first == second).all()
    assert told == [1000, 1500]
    assert (first != rate(puzzles, sample.box, seed=4, attempts=4)).any()


def test_solutions_may_be_left_out(sample):
    part = slice(100)
    puzzles, solutions = sample.puzzles[part], sample.solutions[part]
    known = rate(puzzles, sample.box, solutions, attempts=5)
    assert (rate(puzzles, sample.box, attempts=5) == known).all()


def test_augmentation_keeps_ratings(sample):
    """In the mean: each rating has the noise of its random attempts."""
    puzzles, solutions = Augment(sample.box)(sample.puzzles, sample.solutions, key=9)
    moved = rate(puzzles, sample.box, solutions)
    ratings = rate(sample.puzzles, sample.box, sample.solutions)
    assert abs(moved.mean() - ratings.mean()) < 0.05
    assert ((moved == 0) == (ratings == 0)).all()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("." * 16, "It has more than one solution"),
        ("123....4" + "." * 8, "It has no solution"),
        ("11" + "." * 14, "The givens contradict each other: 1 in row 1, column 1 and row 1, col"),
    ],
)
def test_bad_puzzles(text, why):
    with pytest.raises(DataError, match=f"Cannot rate puzzle 1 of 1. {why}"):
        rate(parse_board(text)[None], BoxShape(2, 2))
