"""Jigsaw puzzles: partitions, one solution by two solvers, ratings, text, files, drawing."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from graph_machine.errors import DataError
from graph_machine.lab.tasks.digits import units_of, valid_boards
from graph_machine.lab.tasks.jigsaw.puzzles import (
    Jigsaws,
    changed_jigsaws,
    draw_jigsaw,
    draw_regions,
    format_regions,
    generate_jigsaws,
    in_reading_order,
    parse_puzzle,
    parse_regions,
    random_changes,
    read_jigsaws,
    valid_regions,
    write_jigsaws,
)
from graph_machine.lab.tasks.rows import stream, symmetries, symmetry_keys
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.solve import rate, solve, solve_singles

ROWS = np.repeat(np.arange(4, dtype=np.uint8), 4)
BLOCKS = parse_puzzle("1....3....4....2/AABBAABBCCDDCCDD")


@pytest.fixture(scope="module")
def puzzles() -> Jigsaws:
    return generate_jigsaws(5, 60, seed=3)


def brute_force(puzzle: np.ndarray, regions: np.ndarray) -> list[np.ndarray]:
    """Every solution, without the kernels: rows are permutations."""
    side = round(len(puzzle) ** 0.5)
    found: list[np.ndarray] = []

    def fill(rows: list[tuple[int, ...]]) -> None:
        if len(rows) == side:
            found.append(np.array(rows).reshape(-1))
            return
        given = puzzle[len(rows) * side : (len(rows) + 1) * side]
        for row in itertools.permutations(range(1, side + 1)):
            if any(g and g != d for g, d in zip(given, row)):
                continue
            cells = np.array([*rows, row]).reshape(-1)
            columns = [tuple(cells[col::side]) for col in range(side)]
            places = regions[: len(cells)]
            units = columns + [tuple(cells[places == label]) for label in range(side)]
            if all(len(set(unit)) == len(unit) for unit in units):
                fill([*rows, row])

    fill([])
    return found


def test_the_same_seed_gives_the_same_puzzles(puzzles: Jigsaws) -> None:
    again = generate_jigsaws(5, 60, seed=3, workers=2)
    other = generate_jigsaws(5, 60, seed=4)
    assert np.array_equal(puzzles.puzzles, again.puzzles)
    assert np.array_equal(puzzles.regions, again.regions)
    assert not np.array_equal(puzzles.regions, other.regions)
    marks = {(p.tobytes(), r.tobytes()) for p, r in zip(puzzles.puzzles, puzzles.regions)}
    assert len(marks) == 60


def test_one_solution_by_an_independent_search(puzzles: Jigsaws) -> None:
    assert valid_regions(puzzles.regions).all()
    assert valid_boards(puzzles.solutions, puzzles.regions).all()
    for row in range(5):
        found = brute_force(puzzles.puzzles[row], puzzles.regions[row])
        assert len(found) == 1
        assert np.array_equal(found[0], puzzles.solutions[row])


def test_puzzles_are_minimal(puzzles: Jigsaws) -> None:
    for puzzle, regions in zip(puzzles.puzzles[:20], puzzles.regions):
        clues = np.flatnonzero(puzzle)
        fewer = np.repeat(puzzle[None], len(clues), axis=0)
        fewer[np.arange(len(clues)), clues] = 0
        same = np.repeat(regions[None], len(clues), axis=0)
        assert (solve(fewer, same).counts == 2).all()


def test_clues_are_put_back() -> None:
    few, many = generate_jigsaws(5, 40), generate_jigsaws(5, 40, extra=8)
    assert 0 < many.clues.mean() - few.clues.mean() < 8
    assert (solve(many.puzzles, many.regions).counts == 1).all()


def test_boxes_are_regions_too() -> None:
    puzzle, regions = BLOCKS
    box = BoxShape(2, 2)
    assert solve(puzzle[None], regions[None], 9).counts == solve(puzzle[None], box, 9).counts


def test_singles_and_ratings_agree() -> None:
    rows = generate_jigsaws(6, 80, seed=1)
    filled = solve_singles(rows.puzzles, rows.regions)
    solved = (filled == rows.solutions).all(axis=1)
    assert ((filled == 0) | (filled == rows.solutions)).all()
    assert np.array_equal(rows.ratings == 0, solved)
    assert 0 < solved.mean() < 1
    again = rate(rows.puzzles, rows.regions, rows.solutions, attempts=10)
    assert np.array_equal(again == 0, solved)


def test_regions_without_a_grid_are_drawn_again() -> None:
    """Of the 22 kinds of 4x4 partitions some have no grid; none of them is in the data."""
    rows = generate_jigsaws(4, 300)
    assert valid_boards(rows.solutions, rows.regions).all()
    with pytest.raises(DataError, match="at most"):
        generate_jigsaws(3, 500)


def test_a_file_round_trip(tmp_path: Path, puzzles: Jigsaws) -> None:
    write_jigsaws(tmp_path / "some.csv", puzzles)
    found = read_jigsaws(tmp_path / "some.csv")
    for name in ("puzzles", "regions", "solutions"):
        assert np.array_equal(getattr(found, name), getattr(puzzles, name))
    assert np.allclose(found.ratings, puzzles.ratings, atol=0.05)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,1234/5", "Line 2 .*6 columns"),
        ("1,................,AABBAABBCCDDCCDD,1234341221434321,0,", "more than one solution"),
        ("1,1234............,AABBAABBCCDDCCDD,1234341221434312,4,", "does not fit"),
        ("1,9234............,AABBAABBCCDDCCDD,1234341221434321,4,", "'9' in row 1, column 1"),
        ("1,1234............,AABBAABBCCDDCCDD,1234341221434321,4,hard", "Line 2"),
        ("1,1234............,AABBAABBCCDDCCDD,123434122143432,4,", "15 cells"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"id,puzzle,regions,solution,clues,difficulty\n{line}\n")
    with pytest.raises(DataError, match=message):
        read_jigsaws(path)


def test_files_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data file"):
        read_jigsaws(tmp_path / "none.csv")
    for text in ("", "id,puzzle,solution,clues,difficulty\n"):
        (tmp_path / "sudoku.csv").write_text(text)
        with pytest.raises(DataError, match="jigsaw"):
            read_jigsaws(tmp_path / "sudoku.csv")


def test_drawing() -> None:
    puzzle, regions = parse_puzzle("1....3....4....2/AAAABBBBCCDDCCDD")
    assert draw_jigsaw(puzzle, regions).plain.splitlines() == [
        "┌───────────────┐",
        "│ 1   .   .   . │",
        "├───────────────┤",
        "│ .   3   .   . │",
        "├───────┬───────┤",
        "│ .   . │ 4   . │",
        "│       │       │",
        "│ .   . │ .   2 │",
        "└───────┴───────┘",
    ]
    filled = np.full(16, 2, dtype=np.uint8)
    how = {"filled": filled, "wrong": np.arange(16) == 1, "confidence": np.full(16, 0.5)}
    lines = draw_jigsaw(puzzle, regions, **how).plain.splitlines()
    assert lines[1] == "│ 1       2! 50   2' 50   2' 50 │"
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("turn", [False, True])
def test_changed_boards_stay_puzzles(puzzles: Jigsaws, turn: bool) -> None:
    changed = changed_jigsaws(puzzles, *random_changes(len(puzzles), 5, 7, turn=turn))
    assert valid_regions(changed.regions).all()
    found = solve(changed.puzzles, changed.regions)
    assert (found.counts == 1).all()
    assert np.array_equal(found.solutions, changed.solutions)
    assert np.array_equal(changed.regions, puzzles.regions) != turn


@pytest.mark.parametrize("side", [3, 5, 6, 9, 12])
def test_drawn_regions_are_connected_and_of_equal_size(side: int) -> None:
    regions = draw_regions(side, stream(side, 30))
    assert np.array_equal(regions, draw_regions(side, stream(side, 30)))
    assert valid_regions(regions).all()
    for board in regions.reshape(-1, side, side):
        for label in range(side):
            parts, count = ndimage.label(board == label)
            assert (count, (parts > 0).sum()) == (1, side)


def test_every_partition_of_a_small_board_is_equally_likely() -> None:
    """There are 117 of 4x4 boards (OEIS A172477), 22 but for rotations and reflections."""
    regions = draw_regions(4, stream(1, 11_700))
    _, counts = np.unique(regions, axis=0, return_counts=True)
    assert len(counts) == 117
    assert 30 < counts.min() <= counts.max() < 300
    assert len(np.unique(symmetry_keys(regions, in_reading_order))) == 22


def test_what_is_no_partition_is_found_out() -> None:
    assert valid_regions(ROWS[None])[0]
    torn = ROWS.copy()
    torn[0], torn[15] = 3, 0
    assert not valid_regions(torn[None])[0]
    uneven = ROWS.copy()
    uneven[4] = 0
    assert not valid_regions(uneven[None])[0]


def test_keys_are_those_of_the_turned_board() -> None:
    regions = draw_regions(5, stream(3, 20))
    for cells in symmetries(5):
        here, there = (symmetry_keys(r, in_reading_order) for r in (regions, regions[:, cells]))
        assert np.array_equal(here, there)
    assert len(np.unique(symmetries(5), axis=0)) == 8


def test_units_of_a_board() -> None:
    for regions in draw_regions(6, stream(4, 5)):
        units = units_of(regions)
        assert (np.sort(units.reshape(3, 36)) == np.arange(36)).all()
        assert (np.ptp(regions[units[12:]], axis=1) == 0).all()


def test_text_form() -> None:
    regions = draw_regions(6, stream(5, 1))[0]
    text = format_regions(regions)
    assert text.startswith("A")
    assert np.array_equal(parse_regions(text), regions)
    assert np.array_equal(parse_regions(text.lower()), in_reading_order(regions[None])[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("................/AAB", "3 cells"),
        ("................/AAAABBBBCCCCCCCC", "3 symbols"),
        ("................/BAAAABBBCCCCDDDD", "connected"),
        ("1234............", "1 part"),
        ("1234............/AAABBBCCC", "16 cells, its regions 9"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_puzzle(text)
