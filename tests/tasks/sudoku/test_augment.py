"""Augmentation keeps boards valid, and does what it says."""

import numpy as np
import pytest

from graph_machine.lab.tasks.sudoku.augment import Augment
from graph_machine.lab.tasks.sudoku.board import BoxShape, valid_grids
from graph_machine.lab.tasks.sudoku.solve import solve, solve_singles


@pytest.mark.parametrize("text", ["2x2", "2x3", "3x2", "3x3", "2x4", "3x4"])
@pytest.mark.parametrize("options", [{}, {"relabel": False}, {"lines": False}])
def test_stays_valid(text, options):
    box = BoxShape.parse(text)
    grid = solve(np.zeros((1, box.cells), dtype=np.uint8), box, limit=1).solutions
    grids = np.repeat(grid, 50, axis=0)
    hidden = np.random.default_rng(0).random(grids.shape) < 0.5
    puzzles = np.where(hidden, 0, grids).astype(np.uint8)
    new_puzzles, new_grids = Augment(box, **options)(puzzles, grids, key=1)
    assert valid_grids(new_grids, box).all()
    assert ((new_puzzles == 0) | (new_puzzles == new_grids)).all()
    assert ((new_puzzles > 0).sum(1) == (puzzles > 0).sum(1)).all()
    assert len(np.unique(new_grids, axis=0)) > 5


def test_examples_stay_as_hard(sample):
    puzzles, solutions = Augment(sample.box)(sample.puzzles, sample.solutions, key=3)
    solved = solve(puzzles, sample.box)
    assert (solved.counts == 1).all()
    assert (solved.solutions == solutions).all()
    done = (solve_singles(puzzles, sample.box) > 0).all(axis=1)
    assert (done == (sample.ratings == 0)).all()


def test_the_key_decides(sample):
    augment = Augment(sample.box)
    first, _ = augment(sample.puzzles, sample.solutions, key=1)
    again, _ = augment(sample.puzzles, sample.solutions, key=1)
    other, _ = augment(sample.puzzles, sample.solutions, key=2)
    assert (first == again).all()
    assert (first != other).any()


def test_nothing_to_do(sample):
    augment = Augment(sample.box, relabel=False, lines=False, transpose=False)
    puzzles, solutions = augment(sample.puzzles, sample.solutions, key=1)
    assert (puzzles == sample.puzzles).all()
    assert (solutions == sample.solutions).all()


def test_each_cell_goes_everywhere():
    """All 81 places are reached by the first cell, about equally often."""
    box = BoxShape(3, 3)
    puzzles = np.zeros((8100, 81), dtype=np.uint8)
    puzzles[:, 0] = 1
    moved, _ = Augment(box)(puzzles, puzzles, key=0)
    counts = (moved > 0).sum(axis=0)
    assert counts.sum() == 8100
    assert ((counts - 100) ** 2 / 100).sum() < 140  # chi-square with 80 degrees of freedom
    assert (np.bincount(moved.max(axis=1))[1:] > 750).all()  # and becomes every digit
