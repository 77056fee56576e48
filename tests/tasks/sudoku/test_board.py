"""Box shapes, symbols, validity of grids, and the drawing."""

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.digits import contradiction, format_board, units_of
from graph_machine.lab.tasks.sudoku.board import BoxShape, draw_board, parse_board, valid_grids

SIX = "123456456123231564564231312645645312"  # valid for 2x3, not for 3x2


@pytest.mark.parametrize(
    ("text", "rows", "cols"), [("3x3", 3, 3), ("2x3", 2, 3), (" 3 X 2 ", 3, 2), ("5×5", 5, 5)]
)
def test_parse_box(text, rows, cols):
    box = BoxShape.parse(text)
    assert box == BoxShape(rows, cols)
    assert BoxShape.parse(str(box)) == BoxShape.parse(box) == box
    assert box.side == rows * cols
    assert box.cells == box.side**2


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
        (81, ["3x3"]),
        (144, ["3x4", "4x3", "2x6", "6x2"]),
        (49, []),
        (80, []),
        (0, []),
        (4, []),
    ],
)
def test_shapes_of_a_board(cells, shapes):
    assert [str(box) for box in BoxShape.candidates(cells)] == shapes
    if not shapes:
        with pytest.raises(DataError, match=f"A board of {cells} cells has no box shape"):
            BoxShape.of_cells(cells)


@pytest.mark.parametrize("text", ["2x2", "2x3", "3x2", "3x3", "2x5", "4x3", "4x4"])
def test_units(text):
    box = BoxShape.parse(text)
    units = units_of(box.regions)
    assert units.shape == (3 * box.side, box.side)
    assert (np.bincount(units.ravel()) == 3).all()
    rows, columns = np.divmod(units[2 * box.side :], box.side)
    assert (np.ptp(rows, axis=1) == box.rows - 1).all()
    assert (np.ptp(columns, axis=1) == box.cols - 1).all()


@pytest.mark.parametrize("side_text", ["2x2", "3x3", "3x4", "4x4", "5x5"])
def test_text_round_trip(side_text):
    box = BoxShape.parse(side_text)
    cells = (np.arange(box.cells) % (box.side + 1)).astype(np.uint8)
    text = format_board(cells)
    assert (parse_board(text) == cells).all()
    assert (parse_board(text.lower().replace(".", "0"), box) == cells).all()
    drawn = draw_board(cells, box).plain
    assert (parse_board(drawn, box) == cells).all()


@pytest.mark.parametrize(
    ("text", "box", "message"),
    [
        ("1" * 80, None, "A board of 80 cells has no box shape"),
        ("1" * 80, "3x3", "Board of 80 cells: expected 81 for box 3x3"),
        ("1" * 80 + "x", "3x3", r"symbol 'x' in row 9, column 9 \(cell 81 of 81\): expected 1..9"),
        ("1" * 15 + "5", "2x2", r"symbol '5' in row 4, column 4 \(cell 16 of 16\): expected 1..4"),
        ("1" * 15 + "é", "2x2", "symbol 'é' in row 4, column 4"),
    ],
)
def test_bad_board(text, box, message):
    with pytest.raises(DataError, match=message):
        parse_board(text, BoxShape.parse(box) if box else None)


def test_valid_grids():
    grid = parse_board(SIX)
    broken = grid.copy()
    broken[:2] = broken[1::-1]  # rows and boxes stay right, columns do not
    zero = grid.copy()
    zero[5] = 0
    wild = grid.copy()
    wild[5] = 200
    grids = np.stack([grid, broken, zero, wild])
    assert valid_grids(grids, BoxShape(2, 3)).tolist() == [True, False, False, False]
    assert not valid_grids(grids, BoxShape(3, 2)).any()


def test_drawing():
    puzzle = parse_board("1..." + "..2." + "...3" + ".4..")
    assert draw_board(puzzle, BoxShape(2, 2)).plain == (
        "┌─────┬─────┐\n"
        "│ 1 . │ . . │\n"
        "│ . . │ 2 . │\n"
        "├─────┼─────┤\n"
        "│ . . │ . 3 │\n"
        "│ . 4 │ . . │\n"
        "└─────┴─────┘"
    )


def test_drawing_of_answers():
    """Filled cells, a wrong one and confidences can be told apart without colour."""
    puzzle = parse_board("1..." + "..2." + "...3" + ".4..")
    filled = parse_board("1234" * 4)
    wrong = np.arange(16) == 1
    board = draw_board(puzzle, BoxShape(2, 2), filled=filled, wrong=wrong)
    assert board.plain.splitlines()[1] == "│ 1  2! │ 3' 4' │"
    plain = draw_board(puzzle, BoxShape(2, 2), filled=filled, wrong=wrong, marks=False).plain
    assert plain.splitlines()[1] == "│ 1 2 │ 3 4 │"
    sure = np.full(16, 0.426)
    shown = draw_board(puzzle, BoxShape(2, 2), filled=filled, confidence=sure).plain.splitlines()
    assert shown[1] == "│ 1     2' 43 │ 3' 43 4' 43 │"
    assert len({len(line) for line in shown}) == 1


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
    found = contradiction(parse_board(text), BoxShape(2, 2).regions)
    assert found == (None if two is None else f"The givens contradict each other: {two}.")
