"""Partitions: drawn with a seed, connected by an independent check, all of them reached."""

import numpy as np
import pytest
from scipy import ndimage

from graph_machine.errors import DataError
from graph_machine.lab.tasks.digits import units_of
from graph_machine.lab.tasks.disguise import symmetries
from graph_machine.lab.tasks.jigsaw.board import (
    format_regions,
    in_reading_order,
    layout_keys,
    neighbours,
    parse_regions,
    valid_regions,
)
from graph_machine.lab.tasks.jigsaw.puzzles import draw_regions
from graph_machine.lab.tasks.rows import stream

ROWS = np.repeat(np.arange(4, dtype=np.uint8), 4)


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
    assert len(np.unique(layout_keys(regions))) == 22


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
        assert np.array_equal(layout_keys(regions), layout_keys(regions[:, cells]))
    assert len(np.unique(symmetries(5), axis=0)) == 8


def test_units_of_a_board() -> None:
    for regions in draw_regions(6, stream(4, 5)):
        units = units_of(regions)
        assert (np.sort(units.reshape(3, 36)) == np.arange(36)).all()
        assert (np.ptp(regions[units[12:]], axis=1) == 0).all()


def test_neighbours_of_a_corner() -> None:
    assert neighbours(3)[0].tolist() == [-1, 3, -1, 1]
    assert neighbours(3)[4].tolist() == [1, 7, 3, 5]


def test_text_form() -> None:
    regions = draw_regions(6, stream(5, 1))[0]
    text = format_regions(regions)
    assert text.startswith("A")
    assert np.array_equal(parse_regions(text), regions)
    assert np.array_equal(parse_regions(text.lower()), in_reading_order(regions[None])[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AAB", "3 cells: expected a square"),
        ("AAAABBBBCCCCCCCC", "use 3 symbols, expected 4"),
        ("BAAAABBBCCCCDDDD", "should be connected"),
    ],
)
def test_bad_regions_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_regions(text)
