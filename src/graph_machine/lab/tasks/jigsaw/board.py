"""Jigsaw boards: regions, the text form `PUZZLE/REGIONS`, and drawing."""

import re
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, UInt8, UInt64
from rich.text import Text

from graph_machine.errors import DataError
from graph_machine.lab.tasks.digits import draw_digits, format_board, parse_cells
from graph_machine.lab.tasks.disguise import symmetry_keys

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXY"
SMALLEST_SIDE, LARGEST_SIDE = 3, len(LETTERS)


def side_of(cells: int) -> int:
    """The side of a square board of that many cells."""
    side = round(cells**0.5)
    if side * side != cells or not SMALLEST_SIDE <= side <= LARGEST_SIDE:
        raise DataError(
            f"A jigsaw board of {cells} cells: expected a square of {SMALLEST_SIDE}x"
            f"{SMALLEST_SIDE} to {LARGEST_SIDE}x{LARGEST_SIDE} cells."
        )
    return side


def in_reading_order(regions: UInt8[np.ndarray, "b n"]) -> UInt8[np.ndarray, "b n"]:
    """The same regions, numbered in the order in which their first cells are read."""
    side = side_of(regions.shape[1])
    first = np.stack([(regions == label).argmax(axis=1) for label in range(side)], axis=1)
    names = np.argsort(np.argsort(first, axis=1), axis=1).astype(np.uint8)
    return np.take_along_axis(names, regions.astype(np.int64), axis=1)


def neighbours(side: int) -> Int64[np.ndarray, "n 4"]:
    """The cells above, below, left and right of each cell; -1 beyond the border."""
    cells = np.pad(np.arange(side * side).reshape(side, side), 1, constant_values=-1)
    ways = (cells[:-2, 1:-1], cells[2:, 1:-1], cells[1:-1, :-2], cells[1:-1, 2:])
    return np.stack([way.reshape(-1) for way in ways], axis=1)


def valid_regions(regions: UInt8[np.ndarray, "b n"]) -> Bool[np.ndarray, "b"]:
    """Which boards have `side` connected regions of `side` cells each."""
    side = side_of(regions.shape[1])
    sizes = np.stack([(regions == label).sum(axis=1) for label in range(side)], axis=1)
    near = neighbours(side)
    same = (near >= 0) & (regions[:, near] == regions[:, :, None])
    parts = connected_parts(np.where(same, near, -1))
    return (sizes == side).all(axis=1) & (parts.max(axis=1) == side - 1)


def connected_parts(targets: Int64[np.ndarray, "b n k"]) -> UInt8[np.ndarray, "b n"]:
    """The connected parts of graphs (edges in slots, -1 where there is none), in reading order."""
    b, n, _ = targets.shape
    linked = targets >= 0
    # Every node takes the smallest number among itself and its neighbours, until nothing changes.
    reached = np.broadcast_to(np.arange(n), (b, n)).copy()
    while True:
        near = np.take_along_axis(reached[:, :, None], targets.clip(0).reshape(b, -1, 1), axis=1)
        lowest = np.where(linked, near.reshape(targets.shape), n).min(axis=2)
        lower = np.minimum(lowest, reached)
        if (lower == reached).all():
            break
        reached = lower
    rank = (reached == np.arange(n)).cumsum(axis=1) - 1
    return np.take_along_axis(rank, reached, axis=1).astype(np.uint8)


def layout_keys(regions: UInt8[np.ndarray, "b n"]) -> UInt64[np.ndarray, "b"]:
    """64 bits of each partition that stay as regions are renamed or the board is turned."""
    return symmetry_keys(regions, in_reading_order)


def parse_regions(text: str) -> UInt8[np.ndarray, "n"]:
    """Regions written with one symbol per cell; any letters or digits will do."""
    side = side_of(len(text))
    symbols = list(dict.fromkeys(text))
    if len(symbols) != side:
        raise DataError(
            f"Regions of a {side}x{side} board use {len(symbols)} symbols, expected {side}: {text}"
        )
    regions = np.array([symbols.index(symbol) for symbol in text], dtype=np.uint8)
    if not valid_regions(regions[None])[0]:
        raise DataError(
            f"Regions should be connected and have {side} cells each (one symbol per cell): {text}"
        )
    return regions


def format_regions(regions: UInt8[np.ndarray, "n"]) -> str:
    """One letter per cell, `A` for the region of the first cell."""
    return "".join(LETTERS[label] for label in in_reading_order(regions[None])[0])


def parse_puzzle(text: str) -> tuple[UInt8[np.ndarray, "n"], UInt8[np.ndarray, "n"]]:
    """Puzzle and regions of `PUZZLE/REGIONS`; a comma or white space separates them as well."""
    parts = [part for part in re.split(r"[/,\s]+", text.strip()) if part]
    if len(parts) != 2:
        raise DataError(f"A jigsaw puzzle is PUZZLE/REGIONS, got {len(parts)} parts: {text}")
    puzzle, regions = parse_cells(parts[0], side_of(len(parts[0]))), parse_regions(parts[1])
    if len(puzzle) != len(regions):
        raise DataError(f"The puzzle has {len(puzzle)} cells, its regions {len(regions)}: {text}")
    return puzzle, regions


def format_puzzle(puzzle: UInt8[np.ndarray, "n"], regions: UInt8[np.ndarray, "n"]) -> str:
    return f"{format_board(puzzle)}/{format_regions(regions)}"


def draw_jigsaw(
    puzzle: UInt8[np.ndarray, "n"], regions: UInt8[np.ndarray, "n"], **how: Any
) -> Text:
    """A board with the borders of its regions; options are those of `draw_board`.

    >>> from graph_machine.lab.tasks.jigsaw.puzzles import generate_jigsaws
    >>> puzzles = generate_jigsaws(side=4, count=1)
    >>> print(draw_jigsaw(puzzles.puzzles[0], puzzles.regions[0]).plain)
    ┌───────┬───────┐
    │ .   . │ .   . │
    │       │       │
    │ .   . │ 4   2 │
    ├───┬───┴───────┤
    │ . │ .   .   . │
    │   └───────┐   │
    │ 4   3   . │ . │
    └───────────┴───┘
    """
    return draw_digits(puzzle, regions, **how)
