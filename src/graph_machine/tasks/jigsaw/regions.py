"""Regions of a board: checks, names in reading order, symmetries, and their text form.

Regions are a row-major array of `n = side * side` labels, 0 .. side - 1. In text a region is a
letter, `A` the one of the first cell, `B` the next one in reading order, and so on.
"""

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt64

from graph_machine.errors import DataError
from graph_machine.tasks.disguise import symmetry_keys

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


def unit_tables(
    regions: UInt8[np.ndarray, "b n"],
) -> tuple[
    Int32[np.ndarray, "b units side"], Int32[np.ndarray, "b n 3"], Int32[np.ndarray, "b n 3"]
]:
    """What the kernels ask of a board: the cells of every row, column and region; for each cell
    its row, column and region; and its place in each of them."""
    b, n = regions.shape
    side = side_of(n)
    row, col = np.divmod(np.arange(n), side)
    lines = np.arange(n).reshape(side, side)
    members = np.argsort(regions, axis=1, kind="stable").reshape(b, side, side)
    cells = np.concatenate(
        [
            np.broadcast_to(
                np.stack([lines, lines.T]).reshape(2 * side, side), (b, 2 * side, side)
            ),
            members,
        ],
        axis=1,
    )
    place = np.zeros((b, n), dtype=np.int64)
    inside = np.broadcast_to(np.arange(n) % side, (b, n))
    np.put_along_axis(place, members.reshape(b, n), inside, axis=1)
    whole = np.broadcast_to(row, (b, n)), np.broadcast_to(col, (b, n))
    units = np.stack([whole[0], whole[1] + side, regions.astype(np.int64) + 2 * side], axis=2)
    places = np.stack([whole[1], whole[0], place], axis=2)
    return cells.astype(np.int32), units.astype(np.int32), places.astype(np.int32)


def parse_regions(text: str) -> UInt8[np.ndarray, "n"]:
    """Regions written with one symbol per cell; any letters or digits will do."""
    compact = "".join(text.split())
    side = side_of(len(compact))
    symbols = list(dict.fromkeys(compact))
    if len(symbols) != side:
        raise DataError(
            f"Regions of a {side}x{side} board use {len(symbols)} symbols, expected {side}: "
            f"{compact}"
        )
    regions = np.array([symbols.index(symbol) for symbol in compact], dtype=np.uint8)
    if not valid_regions(regions[None])[0]:
        raise DataError(
            f"Regions should be connected and have {side} cells each (one symbol per cell): "
            f"{compact}"
        )
    return regions


def format_regions(regions: UInt8[np.ndarray, "n"]) -> str:
    """One letter per cell, `A` for the region of the first cell."""
    named = in_reading_order(regions[None])[0]
    return "".join(LETTERS[label] for label in named)
