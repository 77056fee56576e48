"""The same puzzle under other digits is the same puzzle."""

import numpy as np

from graph_machine.lab.tasks.sudoku.augment import canonical, seen_in
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from support.runs import BOX, puzzle_store


def renamed(store: SudokuStore, rows: slice, seed: int) -> SudokuStore:
    rng = np.random.default_rng(seed)
    puzzles, solutions = store.puzzles[rows].copy(), store.solutions[rows].copy()
    for puzzle, solution in zip(puzzles, solutions, strict=True):
        names = np.concatenate([[0], rng.permutation(4) + 1]).astype(np.uint8)
        puzzle[:], solution[:] = names[puzzle], names[solution]
    ratings = np.zeros(len(puzzles), dtype=np.float32)
    return SudokuStore.from_arrays(puzzles, solutions, ratings, BOX)


def test_canonical_forgets_names_alone() -> None:
    store = puzzle_store(50)
    other = renamed(store, slice(None), 1)
    ours = canonical(store.puzzles, store.solutions, 4)
    np.testing.assert_array_equal(ours, canonical(other.puzzles, other.solutions, 4))
    np.testing.assert_array_equal(ours == 0, store.puzzles == 0)


def test_seen_rows() -> None:
    store = puzzle_store(60)
    other = renamed(store, slice(40, 60), 2)
    every = np.arange(20)
    assert seen_in(other, every, store, np.arange(40, 60)).all()
    # Rows 40 to 49 are among the training rows, the rest is not (these puzzles are all different).
    assert seen_in(other, every, store, np.arange(50)).tolist() == [True] * 10 + [False] * 10
    assert not seen_in(other, every, store, every[:0]).any()
