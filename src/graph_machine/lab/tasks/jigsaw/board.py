"""Jigsaw boards: regions, the text form `PUZZLE/REGIONS`, drawing, and a model's answer."""

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Int64, UInt8, UInt64
from rich.text import Text

from graph_machine.errors import DataError
from graph_machine.lab.tasks.digits import SYMBOLS, VALUE_OF_BYTE, FilledBoard, format_board
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


def parse_cells(text: str) -> UInt8[np.ndarray, "n"]:
    """The cells of a square board of any side, one symbol each."""
    compact = "".join(text.split())
    side = side_of(len(compact))
    values = VALUE_OF_BYTE[np.frombuffer(compact.encode("latin-1", "replace"), dtype=np.uint8)]
    bad = np.flatnonzero(values > side)
    if bad.size:
        where = int(bad[0])
        raise DataError(
            f"Board symbol '{compact[where]}' in row {where // side + 1}, column "
            f"{where % side + 1}: expected {SYMBOLS[1]}..{SYMBOLS[side]}, or '.' for a blank."
        )
    return values


def parse_puzzle(text: str) -> tuple[UInt8[np.ndarray, "n"], UInt8[np.ndarray, "n"]]:
    """Puzzle and regions of `PUZZLE/REGIONS`; a comma or white space separates them as well."""
    parts = [part for part in re.split(r"[/,\s]+", text.strip()) if part]
    if len(parts) != 2:
        raise DataError(f"A jigsaw puzzle is PUZZLE/REGIONS, got {len(parts)} parts: {text}")
    puzzle, regions = parse_cells(parts[0]), parse_regions(parts[1])
    if len(puzzle) != len(regions):
        raise DataError(f"The puzzle has {len(puzzle)} cells, its regions {len(regions)}: {text}")
    return puzzle, regions


def format_puzzle(puzzle: UInt8[np.ndarray, "n"], regions: UInt8[np.ndarray, "n"]) -> str:
    return f"{format_board(puzzle)}/{format_regions(regions)}"


# By which of its four arms (up 1, down 2, left 4, right 8) a corner of cells has a border.
CORNERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


def _borders(regions: UInt8[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray]:
    """Whether there is a border left of each place of a row, and above each place of a column."""
    side = side_of(len(regions))
    framed = np.pad(regions.reshape(side, side).astype(np.int64), 1, constant_values=-1)
    upright = framed[1:-1, 1:] != framed[1:-1, :-1]  # side, side + 1
    level = framed[1:, 1:-1] != framed[:-1, 1:-1]  # side + 1, side
    return upright, level


def _rule(row: int, upright: np.ndarray, level: np.ndarray, width: int) -> str:
    """The line above a row of cells."""
    side = level.shape[1]
    parts = []
    for col in range(side + 1):
        arms = (
            row > 0 and upright[row - 1, col],
            row < side and upright[row, col],
            col > 0 and level[row, col - 1],
            col < side and level[row, col],
        )
        parts.append(CORNERS[sum(1 << bit for bit, arm in enumerate(arms) if arm)])
        if col < side:
            parts.append(("─" if level[row, col] else " ") * width)
    return "".join(parts)


def draw_jigsaw(
    puzzle: UInt8[np.ndarray, "n"],
    regions: UInt8[np.ndarray, "n"],
    *,
    filled: UInt8[np.ndarray, "n"] | None = None,
    wrong: Bool[np.ndarray, "n"] | None = None,
    confidence: Float[np.ndarray, "n"] | None = None,
) -> Text:
    """A board for `rich`; `.plain` is the same without colour.

    `filled` gives the values of the blanks, marked with ' (wrong ones with !); `confidence`
    (0..1) is shown in percent beside each filled cell.

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
    values = puzzle if filled is None else np.where(puzzle > 0, puzzle, filled)
    side = side_of(len(puzzle))
    upright, level = _borders(regions)
    width = 3 + 3 * (confidence is not None)
    text = Text()
    for row in range(side):
        text.append(_rule(row, upright, level, width) + "\n", style="dim")
        for col in range(side):
            cell = row * side + col
            value, given = int(values[cell]), bool(puzzle[cell])
            bad = wrong is not None and bool(wrong[cell])
            style = "bold red reverse" if bad else "bold" if given else "cyan" if value else "dim"
            mark = "!" if bad else "'" if value and not given else " "
            text.append("│ " if upright[row, col] else "  ", style="dim")
            text.append(SYMBOLS[value] + mark, style=style)
            if confidence is not None:
                shown = "   " if given else f"{min(99, round(100 * float(confidence[cell]))):2d} "
                text.append(shown, style="dim")
        text.append("│\n", style="dim")
    text.append(_rule(side, upright, level, width), style="dim")
    return text


@dataclass(frozen=True, kw_only=True)
class JigsawAnswer(FilledBoard):
    """A filled board with regions of its own."""

    regions: UInt8[np.ndarray, "n"]

    @property
    def units(self) -> Int[np.ndarray, "units side"]:
        return unit_tables(self.regions[None])[0][0]

    @property
    def puzzle_text(self) -> str:
        return format_puzzle(self.puzzle, self.regions)

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_jigsaw(
            self.puzzle,
            self.regions,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )
