"""Box shapes, text and drawing; solvers and ratings against the real data and a plain search."""

import json

import numpy as np
import pytest
import torch

from graph_machine.errors import DataError
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.base import baseline_scores, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.digits import contradiction, draw_digits, format_board
from graph_machine.lab.tasks.rows import Splits
from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.tasks.sudoku.augment import Augment
from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board, valid_grids
from graph_machine.lab.tasks.sudoku.solve import (
    kernel_inputs,
    rate,
    solve,
    solve_singles,
)
from graph_machine.lab.tasks.sudoku.task import SudokuTask

TWO, NINE = BoxShape(2, 2), BoxShape(3, 3)
SIX = "123456456123231564564231312645645312"  # valid for 2x3, not for 3x2


@pytest.mark.parametrize(
    ("text", "rows", "cols"), [("3x3", 3, 3), ("2x3", 2, 3), (" 3 X 2 ", 3, 2), ("5×5", 5, 5)]
)
def test_box_shapes(text, rows, cols):
    box = BoxShape.parse(text)
    assert box == BoxShape(rows, cols) == BoxShape.parse(str(box)) == BoxShape.parse(box)
    assert (box.side, box.cells) == (rows * cols, (rows * cols) ** 2)
    assert box.units.shape == (3 * box.side, box.side)
    assert (np.bincount(box.units.ravel()) == 3).all()
    rows, columns = np.divmod(box.units[2 * box.side :], box.side)
    assert (np.ptp(rows, axis=1) == box.rows - 1).all()
    assert (np.ptp(columns, axis=1) == box.cols - 1).all()


@pytest.mark.parametrize(
    "text",
    ["3", "3x", "x3", "3x3x3", "1x4", "0x3", "6x6", "-2x3", "", "1x2", "²x2", "9" * 5000 + "x2"],
)
def test_bad_box(text):
    with pytest.raises(DataError, match="Box shape"):
        BoxShape.parse(text)


@pytest.mark.parametrize(
    ("cells", "shapes"),
    [
        (16, ["2x2"]),
        (36, ["2x3", "3x2"]),
        (144, ["3x4", "4x3", "2x6", "6x2"]),
        *((cells, []) for cells in (49, 80, 0, 4)),
    ],
)
def test_shapes_of_a_board(cells, shapes):
    assert [str(box) for box in BoxShape.candidates(cells)] == shapes
    if not shapes:
        with pytest.raises(DataError, match=f"{cells} cells"):
            BoxShape.of_cells(cells)


@pytest.mark.parametrize("side_text", ["2x2", "3x3", "3x4", "4x4", "5x5"])
def test_text_round_trip(side_text):
    box = BoxShape.parse(side_text)
    cells = (np.arange(box.cells) % (box.side + 1)).astype(np.uint8)
    text = format_board(cells)
    assert (parse_board(text) == cells).all()
    for other in (text.lower().replace(".", "0"), draw_digits(cells, box.regions).plain):
        assert (parse_board(other, box) == cells).all()


@pytest.mark.parametrize(
    ("text", "box", "message"),
    [
        ("1" * 80, None, "80 cells"),
        ("1" * 80, NINE, "80 cells: expected 81"),
        ("1" * 80 + "x", NINE, r"'x' in row 9, column 9 \(cell 81 of 81\): expected 1..9"),
        ("1" * 15 + "5", TWO, r"'5' in row 4, column 4 \(cell 16 of 16\): expected 1..4"),
        ("1" * 15 + "é", TWO, "'é' in row 4, column 4"),
    ],
)
def test_bad_board(text, box, message):
    with pytest.raises(DataError, match=message):
        parse_board(text, box)


def test_valid_grids():
    grid = parse_board(SIX)
    broken, zero, wild = grid.copy(), grid.copy(), grid.copy()
    broken[:2] = broken[1::-1]  # rows and boxes stay right, columns do not
    zero[5], wild[5] = 0, 200
    grids = np.stack([grid, broken, zero, wild])
    assert valid_grids(grids, BoxShape(2, 3)).tolist() == [True, False, False, False]
    assert not valid_grids(grids, BoxShape(3, 2)).any()


def test_drawing():
    """Filled cells, a wrong one and confidences can be distinguished without colour."""
    puzzle, filled = parse_board("1..." + "..2." + "...3" + ".4.."), parse_board("1234" * 4)
    assert draw_digits(puzzle, TWO.regions).plain == (
        "┌─────┬─────┐\n"
        "│ 1 . │ . . │\n"
        "│ . . │ 2 . │\n"
        "├─────┼─────┤\n"
        "│ . . │ . 3 │\n"
        "│ . 4 │ . . │\n"
        "└─────┴─────┘"
    )
    wrong = np.arange(16) == 1

    def lines(**how):
        found = draw_digits(puzzle, TWO.regions, filled=filled, **how).plain.splitlines()
        assert len({len(line) for line in found}) == 1
        return found

    assert lines(wrong=wrong)[1] == "│ 1  2! │ 3' 4' │"
    assert lines(wrong=wrong, marks=False)[1] == "│ 1 2 │ 3 4 │"
    assert lines(confidence=np.full(16, 0.426))[1] == "│ 1     2' 43 │ 3' 43 4' 43 │"


@pytest.mark.parametrize(
    ("text", "two"),
    [
        ("1..1" + "." * 12, "1 in row 1, column 1 and row 1, column 4"),
        (".2...2" + "." * 10, "2 in row 1, column 2 and row 2, column 2"),
        ("3....3" + "." * 10, "3 in row 1, column 1 and row 2, column 2"),
        ("1234" + "." * 12, None),
    ],
)
def test_givens_that_contradict_are_named(text, two):
    found = contradiction(parse_board(text), TWO.regions)
    assert found == (None if two is None else f"The givens contradict each other: {two}.")


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
    peers = np.unique(box.units[(box.units == cell).any(axis=1)])
    found = []
    for digit in range(1, box.side + 1):
        if digit not in cells[peers]:
            cells[cell] = digit
            found += all_solutions(cells, box)
    cells[cell] = 0
    return found


@pytest.mark.parametrize("solver", [solve, solve_generally])
def test_real_puzzles(sample, solver):
    before = sample.puzzles.copy()
    solutions, counts = solver(sample.puzzles, NINE)
    assert (counts == 1).all()
    assert (solutions == sample.solutions).all()
    assert (sample.puzzles == before).all()
    assert solver(before[:0], NINE)[0].shape == (0, 81)
    # Without the corners of an interchangeable rectangle there are exactly two solutions.
    grid = np.array(sample.solutions[0]).reshape(9, 9)
    for rows in [(a, b) for a in range(9) for b in range(a) if a // 3 == b // 3]:
        for columns in [(a, b) for a in range(9) for b in range(a) if a // 3 != b // 3]:
            corners = grid[np.ix_(rows, columns)]
            if corners[0, 0] == corners[1, 1] and corners[0, 1] == corners[1, 0]:
                puzzle = grid.copy()
                puzzle[np.ix_(rows, columns)] = 0
                assert solver(puzzle.reshape(1, 81), NINE, limit=5)[1].tolist() == [2]
                return
    pytest.fail("the grid has no such rectangle: choose another row of the sample")


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
    assert solver(parse_board(text)[None], NINE)[1].tolist() == [count]


@pytest.mark.parametrize("limit", [1, 2, 10, 100])
def test_limit(limit):
    """A digit in a corner of a 4x4 board: 288 grids / 4 digits."""
    counts = solve(parse_board("1" + "." * 15)[None], TWO, limit).counts
    assert counts.tolist() == [min(limit, 72)]


@pytest.mark.parametrize("box", [TWO, BoxShape(2, 3), BoxShape(3, 2)])
def test_against_plain_search(box):
    random = np.random.default_rng(0)
    grid = solve(np.zeros((1, box.cells), dtype=np.uint8), box, limit=1).solutions[0]
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


@pytest.mark.parametrize(("cells", "value", "message"), [(80, 0, "81"), (81, 10, "0 to 9")])
def test_bad_arrays(cells, value, message):
    with pytest.raises(DataError, match=message):
        solve(np.full((1, cells), value, dtype=np.uint8), NINE)


def test_ratings_against_the_data_set(sample):
    """0 exactly where the file says 0.0; on the rest a Pearson correlation of 0.9 or more."""
    ratings = rate(sample.puzzles, NINE, sample.solutions)
    zero = sample.ratings == 0
    assert ((ratings == 0) == zero).all()
    assert (ratings[~zero] >= 1).all()
    assert np.corrcoef(ratings[~zero], sample.ratings[~zero])[0, 1] >= 0.9
    # Augmentation keeps them in the mean: each rating has the noise of its random attempts.
    puzzles, solutions = Augment(NINE)(sample.puzzles, sample.solutions, key=9)
    moved = rate(puzzles, NINE, solutions)
    assert abs(moved.mean() - ratings.mean()) < 0.05
    assert ((moved == 0) == zero).all()


def test_ratings_are_the_same_for_any_number_of_workers(sample):
    puzzles, done = np.concatenate([sample.puzzles] * 3), []
    first = rate(puzzles, NINE, seed=3, attempts=4)  # solutions may be left out
    solutions = np.concatenate([sample.solutions] * 3)
    how = {"attempts": 4, "workers": 2, "progress": done.append}
    assert (first == rate(puzzles, NINE, solutions, seed=3, **how)).all()
    assert done == [1000, 1500]
    assert (first != rate(puzzles, NINE, solutions, seed=4, attempts=4)).any()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("." * 16, "more than one solution"),
        ("123....4" + "." * 8, "no solution"),
        ("11" + "." * 14, "1 in row 1, column 1 and row 1, column 2"),
    ],
)
def test_puzzles_that_cannot_be_rated(text, why):
    with pytest.raises(DataError, match=f"puzzle 1 of 1.*{why}"):
        rate(parse_board(text)[None], TWO)


def test_scores_by_hand():
    """Board 0 is right but for a given, which does not count; board 1 has one of two blanks."""
    task = task_of(SudokuConfig(box="2x2"))
    puzzles = torch.tensor([[1, 0, 0, 4], [0, 0, 3, 4], [1, 2, 3, 4]])
    answers = torch.tensor([[9, 2, 3, 4], [1, 9, 3, 4], [1, 2, 3, 4]]) - 1
    groups = {"rating": np.array([0.0, 3.4, np.nan]), "clues": np.array([2, 2, 4])}
    batch = Batch(puzzles, torch.tensor([[0, 1, 2, 3]] * 3), puzzles == 0, groups)
    values = {n: column.numpy().astype(float) for n, column in task.score(answers, batch).items()}
    assert values["nodes_right"].tolist() == [2, 1, 0]
    scores = Scores(values, groups, task.metrics)

    def summary(examples, boards, cells):
        return {"examples": examples, "board_accuracy": boards, "cell_accuracy": cells}

    assert scores.summary() == summary(3, 2 / 3, 3 / 4)
    rating, clues = task.groupings
    assert scores.by(rating) == {"0.0": summary(1, 1.0, 1.0), "2.1-4.0": summary(1, 0.0, 0.5)}
    assert scores.by(clues) == {"2": summary(2, 0.5, 0.75), "4": summary(1, 1.0, None)}
    json.dumps(scores.by(clues))
    ratings = np.array([0, 1, 2, 2.1, 4, 4.1, 8.5, np.nan], dtype=np.float32)
    assert [int(rows.sum()) for rows in rating.rows(ratings).values()] == [1, 2, 2, 2]


def test_baselines(sample):
    task = SudokuTask(SudokuConfig()).use(sample, splits=Splits.tests(len(sample)))
    found = baseline_scores(task, "test")
    exact, singles = found["exact solver"].summary(), found["singles only"].summary()
    assert exact["board_accuracy"] == exact["cell_accuracy"] == 1
    bands = found["singles only"].by(task.groupings[0])
    assert bands["0.0"]["board_accuracy"] == 1
    assert singles["board_accuracy"] == pytest.approx((sample.ratings == 0).mean())
    assert 0 < bands["4.1-8.5"]["cell_accuracy"] < bands["1.0-2.0"]["cell_accuracy"] < 1
    assert len(baseline_scores(task, "test", 10)["exact solver"]) == 10
