"""Batches: a function of seed and step alone; augmentation; overlap."""

import numpy as np
import pytest
import torch

from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.rows import RowOrder, Splits, permutation
from graph_machine.lab.tasks.sudoku.augment import Augment, fingerprints
from graph_machine.lab.tasks.sudoku.board import BoxShape, valid_grids
from graph_machine.lab.tasks.sudoku.solve import solve, solve_singles
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from support.runs import BOX, puzzle_store

ROWS = np.arange(100, 130)


@pytest.mark.parametrize("augment", ["none", "all"])
def test_batches_depend_on_seed_and_step_alone(sample, augment):
    def answers(step, seed=5):
        task = SudokuTask(SudokuConfig(augment=augment)).use(sample, splits=splits)
        return task.batch(step, 8, seed).answers

    splits = Splits(ROWS, ROWS[:0], ROWS[:0])
    task = SudokuTask(SudokuConfig(augment=augment)).use(sample, splits=splits)
    for step in (0, 1, 2, 9, 10, 3, 3):  # out of order
        assert torch.equal(task.batch(step, 8, 5).answers, answers(step))
    assert not torch.equal(answers(0), answers(0, seed=6))
    if augment == "none":
        rows = RowOrder(ROWS, 5)(2, 8)
        assert (answers(2).numpy() == sample.solutions[rows] - 1).all()


@pytest.mark.parametrize("text", ["2x2", "2x3", "3x2", "3x3", "2x4", "3x4"])
@pytest.mark.parametrize("options", [{}, {"relabel": False}, {"lines": False}])
def test_changed_boards_stay_valid(text, options):
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


def test_the_key_decides_and_examples_stay_as_hard(sample):
    augment = Augment(sample.box)
    first, again, other = (augment(sample.puzzles, sample.solutions, key=k) for k in (1, 1, 2))
    assert (first[0] == again[0]).all()
    assert (first[0] != other[0]).any()
    solved = solve(first[0], sample.box)
    assert (solved.counts == 1).all()
    assert (solved.solutions == first[1]).all()
    done = (solve_singles(first[0], sample.box) > 0).all(axis=1)
    assert (done == (sample.ratings == 0)).all()
    nothing = Augment(sample.box, relabel=False, lines=False, transpose=False)
    puzzles, solutions = nothing(sample.puzzles, sample.solutions, key=1)
    assert (puzzles == sample.puzzles).all()
    assert (solutions == sample.solutions).all()


def test_each_cell_goes_everywhere():
    """All 81 places are reached by the first cell, about equally often."""
    puzzles = np.zeros((8100, 81), dtype=np.uint8)
    puzzles[:, 0] = 1
    moved, _ = Augment(BoxShape(3, 3))(puzzles, puzzles, key=0)
    counts = (moved > 0).sum(axis=0)
    assert counts.sum() == 8100
    assert ((counts - 100) ** 2 / 100).sum() < 140  # chi-square with 80 degrees of freedom
    assert (np.bincount(moved.max(axis=1))[1:] > 750).all()  # and becomes every digit


def test_fingerprints_forget_only_names(sample):
    marks = fingerprints(sample.puzzles)
    assert len(np.unique(marks)) == len(sample)
    labels = np.concatenate([[0], permutation(5, 9) + 1]).astype(np.uint8)
    assert (fingerprints(labels[sample.puzzles]) == marks).all()
    assert (fingerprints(np.roll(sample.puzzles, 1, axis=1)) != marks).all()


def test_the_same_puzzle_under_other_digits_was_seen():
    store, rng = puzzle_store(60), np.random.default_rng(2)
    puzzles, solutions = store.puzzles[40:].copy(), store.solutions[40:].copy()
    for puzzle, solution in zip(puzzles, solutions, strict=True):
        names = np.concatenate([[0], rng.permutation(4) + 1]).astype(np.uint8)
        puzzle[:], solution[:] = names[puzzle], names[solution]
    config = SudokuConfig(box="2x2")
    renamed = SudokuStore.from_arrays(puzzles, solutions, box=BOX)
    other = SudokuTask(config).use(renamed, splits=Splits.tests(20))
    task = SudokuTask(config).use(store)

    def seen(train):
        task.splits = Splits(train, train[:0], train[:0])
        return other.seen_in_training(task, None)

    # Rows 40 to 49 are among the training rows, the rest is not (these puzzles are all different).
    assert [seen(np.arange(40, 60)), seen(np.arange(50)), seen(np.arange(0))] == [20, 10, 0]
