"""The same puzzle under other digits is the same puzzle."""

import numpy as np

from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.rows import Splits
from graph_machine.lab.tasks.sudoku.store import SudokuStore
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from support.runs import BOX, puzzle_store

TASK = SudokuConfig(box="2x2")


def renamed(store: SudokuStore, rows: slice, seed: int) -> SudokuStore:
    rng = np.random.default_rng(seed)
    puzzles, solutions = store.puzzles[rows].copy(), store.solutions[rows].copy()
    for puzzle, solution in zip(puzzles, solutions, strict=True):
        names = np.concatenate([[0], rng.permutation(4) + 1]).astype(np.uint8)
        puzzle[:], solution[:] = names[puzzle], names[solution]
    ratings = np.zeros(len(puzzles), dtype=np.float32)
    return SudokuStore.from_arrays(puzzles, solutions, ratings, BOX)


def test_seen_rows() -> None:
    store = puzzle_store(60)
    other = SudokuTask(TASK).use(renamed(store, slice(40, 60), 2), splits=Splits.tests(20))
    task = SudokuTask(TASK).use(store)

    def seen(train: np.ndarray) -> int | None:
        task.splits = Splits(train, train[:0], train[:0])
        return other.seen_in_training(task, None)

    # Rows 40 to 49 are among the training rows, the rest is not (these puzzles are all different).
    assert [seen(np.arange(40, 60)), seen(np.arange(50)), seen(np.arange(0))] == [20, 10, 0]
