"""Batches: a function of seed and step alone, made ahead in a thread; augmentation; overlap."""

import gc
import threading
import time
from dataclasses import fields

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.rows import Splits, permutation
from graph_machine.lab.tasks.sudoku.augment import Augment, fingerprints
from graph_machine.lab.tasks.sudoku.batches import BatchStream
from graph_machine.lab.tasks.sudoku.board import BoxShape, valid_grids
from graph_machine.lab.tasks.sudoku.solve import solve, solve_singles
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from support.runs import BOX, puzzle_store

ROWS = np.arange(100, 130)


def same(first, second):
    names = [item.name for item in fields(first)]
    return all((getattr(first, name) == getattr(second, name)).all() for name in names)


@pytest.mark.parametrize("batch_size", [1, 7, 30, 64])
def test_every_row_once_per_epoch(sample, batch_size):
    stream = BatchStream(sample, ROWS, batch_size, seed=0)
    places = np.concatenate([stream.batch_rows(step) for step in range(-(-90 // batch_size))])
    epochs = places[:90].reshape(3, 30)
    assert (np.sort(epochs, axis=1) == ROWS).all()
    assert (epochs[0] != epochs[1]).any()


@pytest.mark.parametrize("augmented", [False, True])
def test_resume_at_any_step(sample, augmented):
    augment = Augment(sample.box) if augmented else None
    whole = BatchStream(sample, ROWS, 8, seed=5, augment=augment)
    batches = [whole.batch(step) for step in range(12)]
    for start in (0, 3, 11):
        with BatchStream(sample, ROWS, 8, 5, start_step=start, augment=augment) as stream:
            for step, batch in zip(range(start, 12), stream):
                assert same(batch, batches[step])
    with BatchStream(sample, ROWS, 8, seed=5, augment=augment) as stream:
        for step in (0, 1, 2, 9, 10, 3, 3):  # out of order
            assert same(stream.fetch(step), batches[step])
    assert not same(BatchStream(sample, ROWS, 8, seed=6, augment=augment).batch(0), batches[0])
    if not augmented:
        assert same(batches[2], sample.take(whole.batch_rows(2)))
        assert batches[2].puzzles.flags.writeable
        assert not np.shares_memory(batches[2].puzzles, sample.puzzles)


def test_the_thread_ends(sample):
    def running():
        return [t for t in threading.enumerate() if t.name.startswith("batches")]

    assert not running()
    stream = BatchStream(sample, ROWS, 8, seed=0, prefetch=2)
    stream.fetch(0)
    assert running()
    stream.close()
    assert not running()
    stream.fetch(1)
    del stream
    gc.collect()
    for _ in range(50):
        if not running():
            break
        time.sleep(0.05)
    assert not running()


def test_errors_of_the_thread_arrive(sample):
    def fail(puzzles, solutions, key):
        raise ArithmeticError("in the thread")

    with (
        BatchStream(sample, ROWS, 8, seed=0, augment=fail) as stream,
        pytest.raises(ArithmeticError, match="thread"),
    ):
        stream.fetch(0)
    for count, size in ((0, 8), (5, 0)):
        with pytest.raises(DataError, match=f"{count} rows and batch size {size}"):
            BatchStream(sample, np.arange(count), size, seed=0)


def test_prefetch_hides_the_work(sample):
    """While the reader works, the next batches are made: it waits for the first one only."""

    def slow(puzzles, solutions, key):
        time.sleep(0.02)
        return puzzles, solutions

    waited = []
    with BatchStream(sample, ROWS, 8, seed=0, augment=slow) as stream:
        for step in range(6):
            start = time.perf_counter()
            stream.fetch(step)
            waited.append(time.perf_counter() - start)
            time.sleep(0.1)
    assert np.median(waited[1:]) < 0.01


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
