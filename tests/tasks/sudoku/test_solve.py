"""The exact solver and the singles solver, against the real solutions and a plain search."""

import sys

import numpy as np
import pytest

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.digits import units_of
from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board, valid_grids
from graph_machine.lab.tasks.sudoku.solve import (
    count_solutions,
    kernel_inputs,
    solve,
    solve_singles,
)

NINE = BoxShape(3, 3)
# The board of one digit 1 in a corner, of a 4x4: 288 grids / 4 digits.
ONE_CLUE = "1" + "." * 15


def solve_generally(puzzles, box, limit=2):
    """The solver of any box shape, also for 3x3, where `solve` takes the faster one."""
    general = load_kernels("sudoku.kernels_any", "test")
    regions, cells = kernel_inputs(puzzles, box)
    solutions, counts = np.zeros_like(cells), np.zeros(len(cells), dtype=np.int64)
    general.solve_all(regions, cells, limit, solutions, counts)
    return solutions, counts


def all_solutions(cells, box):
    """Every solution by trying digits cell by cell: slow, and shares no code with the solvers."""
    blanks = np.flatnonzero(cells == 0)
    if not blanks.size:
        return [cells.copy()] if valid_grids(cells[None], box)[0] else []
    cell = blanks[0]
    units = units_of(box.regions)
    peers = np.unique(units[(units == cell).any(axis=1)])
    found = []
    for digit in range(1, box.side + 1):
        if digit not in cells[peers]:
            cells[cell] = digit
            found += all_solutions(cells, box)
    cells[cell] = 0
    return found


@pytest.mark.parametrize("solver", [solve, solve_generally])
def test_real_puzzles(sample, solver):
    solutions, counts = solver(sample.puzzles, NINE)
    assert (counts == 1).all()
    assert (solutions == sample.solutions).all()


@pytest.mark.parametrize("solver", [solve, solve_generally])
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("." * 81, 2),  # many
        ("11" + "." * 79, 0),  # two equal givens in a row
        ("1........" * 2 + "." * 63, 0),  # in a column
        ("1........." + "1" + "." * 70, 0),  # in a box
        ("12345678." + ".........9"[1:] + "." * 63, 0),  # the last cell of a row has no digit left
        # Two digits that can change places in two rows of a band.
        ("..4678912672195348198342567859761423426853791713924856961537284287419635345286179", 1),
        ("..46789126721953481983425678597614234268537917139248569615372842874196353.52861.9", 1),
    ],
)
def test_number_of_solutions(solver, text, count):
    _, counts = solver(parse_board(text)[None], NINE)
    assert counts.tolist() == [count]


@pytest.mark.parametrize("solver", [solve, solve_generally])
def test_two_solutions(solver, sample):
    """Without the corners of an interchangeable rectangle there are exactly two."""
    grid = np.array(sample.solutions[0]).reshape(9, 9)
    for rows in [(a, b) for a in range(9) for b in range(a) if a // 3 == b // 3]:
        for columns in [(a, b) for a in range(9) for b in range(a) if a // 3 != b // 3]:
            corners = grid[np.ix_(rows, columns)]
            if corners[0, 0] == corners[1, 1] and corners[0, 1] == corners[1, 0]:
                puzzle = grid.copy()
                puzzle[np.ix_(rows, columns)] = 0
                _, counts = solver(puzzle.reshape(1, 81), NINE, limit=5)
                assert counts.tolist() == [2]
                return
    pytest.fail("the grid has no such rectangle: choose another row of the sample")


@pytest.mark.parametrize("limit", [1, 2, 10, 100])
def test_limit(limit):
    counts = count_solutions(parse_board(ONE_CLUE)[None], BoxShape(2, 2), limit)
    assert counts.tolist() == [min(limit, 72)]


@pytest.mark.parametrize("box", [BoxShape(2, 2), BoxShape(2, 3), BoxShape(3, 2)])
def test_against_plain_search(box):
    random = np.random.default_rng(0)
    grid = solve(np.zeros((1, box.cells), dtype=np.uint8), box, limit=1).solutions[0]
    assert valid_grids(grid[None], box).all()
    for _ in range(20):
        puzzle = grid * (random.random(box.cells) < 0.45)
        if random.random() < 0.3:  # most of these have no solution
            puzzle[random.integers(box.cells)] = random.integers(1, box.side + 1)
        expected = all_solutions(puzzle.copy(), box)
        solutions, counts = solve(puzzle[None].astype(np.uint8), box, limit=200)
        assert counts[0] == min(200, len(expected))
        if expected:
            assert any((solutions[0] == grid).all() for grid in expected)
        else:
            assert not solutions.any()


@pytest.mark.parametrize("box", [BoxShape(2, 4), BoxShape(3, 4), BoxShape(4, 4), BoxShape(5, 5)])
def test_large_boards(box):
    solved = solve(np.zeros((1, box.cells), dtype=np.uint8), box, limit=1)
    assert valid_grids(solved.solutions, box).all()


def test_singles(sample):
    filled = solve_singles(sample.puzzles, NINE)
    assert ((filled == 0) | (filled == sample.solutions)).all()
    assert (filled[sample.puzzles > 0] > 0).all()
    # The data set rates 0 what singles solve.
    assert ((filled > 0).all(axis=1) == (sample.ratings == 0)).all()


def test_solving_empties_nothing(sample):
    before = sample.puzzles.copy()
    solve(sample.puzzles, NINE)
    assert (sample.puzzles == before).all()
    assert solve(before[:0], NINE).solutions.shape == (0, 81)


@pytest.mark.parametrize(
    ("cells", "value", "message"),
    [(80, 0, r"expected \(b, 81\) for box 3x3"), (81, 10, "Puzzles hold 10: expected 0 to 9")],
)
def test_bad_arrays(cells, value, message):
    with pytest.raises(DataError, match=message):
        solve(np.full((1, cells), value, dtype=np.uint8), NINE)


def test_without_numba(monkeypatch, sample):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"'numba'.*\[data"):
        solve(sample.puzzles, NINE)
