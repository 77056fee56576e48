"""The symbolic reference rows of every report: "singles only" and the exact solver."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int64, UInt8

from graph_machine.tasks.sudoku.batches import sequential_batches
from graph_machine.tasks.sudoku.board import BoxShape
from graph_machine.tasks.sudoku.metrics import Tally, score
from graph_machine.tasks.sudoku.solve import solve, solve_singles
from graph_machine.tasks.sudoku.store import SudokuStore

Predict = Callable[[UInt8[np.ndarray, "b n"], BoxShape], UInt8[np.ndarray, "b n"]]


def _exact(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt8[np.ndarray, "b n"]:
    return solve(puzzles, box, limit=1).solutions


BASELINES: dict[str, Predict] = {"singles only": solve_singles, "exact solver": _exact}


def score_baselines(
    store: SudokuStore, rows: Int64[np.ndarray, "r"] | None = None, batch_size: int = 4096
) -> dict[str, Tally]:
    """Each baseline's accuracy on some rows of a store (all of them by default).

    A blank that singles do not settle counts as wrong: 0 is no digit.
    """
    if rows is None:
        rows = np.arange(len(store))
    tallies = {name: Tally() for name in BASELINES}
    for batch in sequential_batches(store, rows, batch_size):
        for name, predict in BASELINES.items():
            scores = score(predict(batch.puzzles, store.box), batch.puzzles, batch.solutions)
            tallies[name].add(scores, batch.ratings, batch.clues)
    return tallies
