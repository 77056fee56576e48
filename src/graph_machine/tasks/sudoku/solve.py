"""Exact solver and the "singles only" solver, over arrays of puzzles (needs the extra `data`)."""

import importlib
from types import ModuleType
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.tasks.sudoku.board import BoxShape

NINE = BoxShape(3, 3)
NO_BUDGET = np.iinfo(np.int64).max


class Solved(NamedTuple):
    """A solution of each puzzle (0s if there is none) and how many it has, up to the limit.

    >>> from graph_machine.tasks.sudoku.board import parse_board
    >>> solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2)).counts
    array([1], dtype=uint8)
    """

    solutions: UInt8[np.ndarray, "b n"]
    counts: UInt8[np.ndarray, "b"]


def kernels(name: str, what: str) -> ModuleType:
    """The kernel module `nine` or `general`, or an error that names the extra that `what` needs."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        raise MissingExtraError("numba", "data", what) from error
    return importlib.import_module(f"graph_machine.tasks.sudoku.kernels.{name}")


def as_cells(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt8[np.ndarray, "b n"]:
    """A copy that the kernels take: checked, contiguous, writable (else numba compiles anew)."""
    if puzzles.ndim != 2 or puzzles.shape[1] != box.cells:
        raise DataError(
            f"Puzzles of shape {puzzles.shape}: expected (b, {box.cells}) for box {box}."
        )
    if puzzles.max(initial=0) > box.side:
        raise DataError(f"Puzzles hold {puzzles.max()}: expected 0 to {box.side} for box {box}.")
    return np.array(puzzles, dtype=np.uint8, order="C")


def solve(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape, limit: int = 2) -> Solved:
    """Solve every puzzle exactly, counting solutions up to `limit`.

    >>> from graph_machine.tasks.sudoku.board import format_board, parse_board
    >>> found = solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))  # b n
    >>> format_board(found.solutions[0])
    '4132234114233214'
    """
    cells = as_cells(puzzles, box)
    solutions = np.zeros_like(cells)
    counts = np.zeros(len(cells), dtype=np.int64)
    if box == NINE:
        kernels("nine", "Solving Sudoku").solve_all(cells, limit, solutions, counts)
    else:
        general = kernels("general", "Solving Sudoku")
        state = general.make_state(box.units)
        general.solve_all(state, cells, limit, NO_BUDGET, solutions, counts)
    return Solved(solutions, np.minimum(counts, 255).astype(np.uint8))


def count_solutions(
    puzzles: UInt8[np.ndarray, "b n"], box: BoxShape, limit: int = 2
) -> UInt8[np.ndarray, "b"]:
    """The number of solutions of every puzzle, at most `limit`.

    >>> empty = np.zeros((1, 16), dtype=np.uint8)  # b n
    >>> count_solutions(empty, BoxShape(2, 2), limit=200)
    array([200], dtype=uint8)
    """
    return solve(puzzles, box, limit).counts


def solve_singles(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt8[np.ndarray, "b n"]:
    """Fill in what naked and hidden singles give, without a guess; other cells stay 0.

    >>> from graph_machine.tasks.sudoku.board import format_board, parse_board
    >>> format_board(solve_singles(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))[0])
    '4132234114233214'
    """
    cells = as_cells(puzzles, box)
    general = kernels("general", "Solving Sudoku")
    filled = np.zeros_like(cells)
    general.singles_all(general.make_state(box.units), cells, filled)
    return filled
