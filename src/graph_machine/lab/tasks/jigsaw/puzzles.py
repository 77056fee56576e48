"""Jigsaw puzzles: regions, text `PUZZLE/REGIONS`, drawing, generator, files, and the task.

The solver is that of Sudoku: its kernels take the regions of every board (extra `data`). A model
is given a token per cell, and hard edges to the four neighbours. The category of an edge says in
which direction the neighbour lies and whether it is in the same region. Regions are nowhere else,
unless `regions_in_tokens` puts them into the tokens.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8, UInt16

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import GRID_CATEGORIES, InputGraph, grid_graph
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.tasks import digits, load_kernels
from graph_machine.lab.tasks.answers import Disguise
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.csv_files import read_boards, write_rows
from graph_machine.lab.tasks.digits import format_board, moved, parse_cells
from graph_machine.lab.tasks.rows import (
    Boards,
    Cells,
    Keys,
    Moves,
    Names,
    RowArrays,
    Splits,
    distinct,
    in_threads,
    join_rows,
    mix,
    split_by_key,
    stream,
    stream_key,
    symmetries,
    symmetry_keys,
)
from graph_machine.lab.tasks.scores import Grouping
from graph_machine.lab.tasks.sudoku.augment import fingerprints
from graph_machine.lab.tasks.sudoku.generate import BUDGET, NO_BUDGET, made_puzzles
from graph_machine.lab.tasks.sudoku.solve import RATING_BANDS, solve
from graph_machine.lab.tasks.sudoku.task import DigitTask

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXY"
SMALLEST_SIDE, LARGEST_SIDE = 3, len(LETTERS)
SLOTS = 5  # of the input graph: a cell and its neighbours


def side_of(cells: int) -> int:
    """The side of a square board of that many cells."""
    side = round(cells**0.5)
    if side * side != cells or not SMALLEST_SIDE <= side <= LARGEST_SIDE:
        raise DataError(
            f"A jigsaw board of {cells} cells: expected a square of {SMALLEST_SIDE}x"
            f"{SMALLEST_SIDE} to {LARGEST_SIDE}x{LARGEST_SIDE} cells."
        )
    return side


def in_reading_order(regions: Boards) -> Boards:
    """The same regions, numbered in the order in which their first cells are read."""
    side = side_of(regions.shape[1])
    first = np.stack([(regions == label).argmax(axis=1) for label in range(side)], axis=1)
    names = np.argsort(np.argsort(first, axis=1), axis=1).astype(np.uint8)
    return np.take_along_axis(names, regions.astype(np.int64), axis=1)


def valid_regions(regions: Boards) -> Bool[np.ndarray, "b"]:
    """Which boards have `side` connected regions of `side` cells each."""
    side = side_of(regions.shape[1])
    sizes = np.stack([(regions == label).sum(axis=1) for label in range(side)], axis=1)
    near = grid_graph(side, side, SLOTS).targets.numpy()
    same = (near >= 0) & (regions[:, near] == regions[:, :, None])
    parts = connected_parts(np.where(same, near, -1))
    return (sizes == side).all(axis=1) & (parts.max(axis=1) == side - 1)


def connected_parts(targets: Int64[np.ndarray, "b n k"]) -> Boards:
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


def parse_regions(text: str) -> Cells:
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


def format_regions(regions: Cells) -> str:
    """One letter per cell, `A` for the region of the first cell."""
    return "".join(LETTERS[label] for label in in_reading_order(regions[None])[0])


def parse_puzzle(text: str) -> tuple[Cells, Cells]:
    """Puzzle and regions of `PUZZLE/REGIONS`; a comma or white space separates them as well."""
    parts = [part for part in re.split(r"[/,\s]+", text.strip()) if part]
    if len(parts) != 2:
        raise DataError(f"A jigsaw puzzle is PUZZLE/REGIONS, got {len(parts)} parts: {text}")
    puzzle, regions = parse_cells(parts[0], side_of(len(parts[0]))), parse_regions(parts[1])
    if len(puzzle) != len(regions):
        raise DataError(f"The puzzle has {len(puzzle)} cells, its regions {len(regions)}: {text}")
    return puzzle, regions


draw_jigsaw = digits.draw_digits  # a board with the borders of its regions

# Recombinations and proposed swaps of a chain of partitions, per side and per side cubed: with
# more of either, neither distinct partitions nor the length of borders change by one per cent.
RECOMBINATIONS, SWAPS = 5, 3
# Up to this side a puzzle is minimal in the strict sense; on larger boards a clue also stays where
# the proof that it can go takes more than BUDGET guesses: a few proofs would take for ever.
STRICT_SIDE = 6
# A search for a grid that gets lost starts again this often; then the regions are given up.
RESTARTS = 20
BLOCK = 256
# That many attempts in a row without a new puzzle end the search for more.
PATIENCE = 20_000


@dataclass(frozen=True)
class Jigsaws(RowArrays):
    """Puzzles (0 is a blank), their regions (in reading order) and solutions.

    >>> generate_jigsaws(side=4, count=3, seed=0).regions.shape  # count n
    (3, 16)
    """

    puzzles: UInt8[np.ndarray, "count n"]
    regions: UInt8[np.ndarray, "count n"]
    solutions: UInt8[np.ndarray, "count n"]
    ratings: Float32[np.ndarray, "count"]  # NaN if unknown

    @classmethod
    def unsolved(
        cls, puzzles: UInt8[np.ndarray, "count n"], regions: UInt8[np.ndarray, "count n"]
    ) -> "Jigsaws":
        """Boards without solutions (0) and ratings."""
        unknown = np.full(len(puzzles), np.nan, dtype=np.float32)
        return cls(puzzles, regions, np.zeros_like(puzzles), unknown)

    @property
    def shape(self) -> UInt8[np.ndarray, "count n"]:
        """The regions, as solvers take them."""
        return self.regions

    @property
    def clues(self) -> UInt16[np.ndarray, "count"]:
        """Given cells of every puzzle."""
        return np.count_nonzero(self.puzzles, axis=1).astype(np.uint16)


def draw_regions(side: int, seeds: Keys) -> Boards:
    """Random partitions into connected regions of `side` cells, in reading order."""
    made = load_kernels("jigsaw.kernels", "Generating jigsaw puzzles")
    regions = np.zeros((len(seeds), side * side), dtype=np.uint8)
    made.partitions(np.array(seeds), RECOMBINATIONS * side, SWAPS * side**3, regions)
    return in_reading_order(regions)


def generate_jigsaws(
    side: int, count: int, seed: int = 0, *, extra: int = 0, workers: int = 1
) -> Jigsaws:
    """`count` distinct puzzles; up to `extra` clues are put back into each minimal one.

    >>> generate_jigsaws(side=4, count=3, seed=0).puzzles.shape  # count n
    (3, 16)
    """
    if extra < 0:
        raise DataError(f"Extra clues must be at least 0, got {extra}.")

    def failure(made: int, barren: int) -> str | None:
        if barren * BLOCK < PATIENCE:
            return None
        return (
            f"distinct jigsaw puzzles of side {side} found, none in the last {PATIENCE:,} "
            f"attempts: ask for at most {made:,}, or allow more clues to be put back."
        )

    def marks(block: Jigsaws) -> list[tuple[bytes, int]]:
        """Two puzzles with the same regions are the same up to the names of their digits."""
        names = fingerprints(block.puzzles).tolist()
        return [(row.tobytes(), name) for row, name in zip(block.regions, names)]

    key = stream_key("jigsaw", seed, side)
    blocks = in_threads(lambda seeds: _attempt(side, seeds, extra), key, BLOCK, workers)
    return join_rows([*distinct(blocks, marks, count, failure)])


def _attempt(side: int, seeds: Keys, extra: int, *, rated: bool = True) -> Jigsaws:
    """One puzzle per seed, without those whose regions have no grid."""
    regions, fresh = draw_regions(side, seeds), mix(seeds)
    limits = (NO_BUDGET if side <= STRICT_SIDE else BUDGET, RESTARTS)
    hits, made = made_puzzles(regions, fresh, (0, side * side), extra, limits, rated=rated)
    return Jigsaws(made.puzzles, regions[hits], made.solutions, made.ratings)


def random_changes(count: int, side: int, key: int, *, turn: bool) -> tuple[Moves, Names]:
    """Per board, for each new cell the old cell that moves there; and the new names of digits.

    Every board gets its own draw, decided only by the key; without `turn`, cells stay."""
    draws = stream(key, count * (side + 1)).reshape(count, side + 1)
    which = (draws[:, side] >> np.uint64(61)).astype(np.int64) if turn else np.zeros(count, int)
    return symmetries(side)[which], digits.digit_names(draws[:, :side])


def changed_jigsaws(rows: Jigsaws, cells: Moves, names: Names) -> Jigsaws:
    """Boards with moved cells and other digits."""
    puzzles, solutions = (moved(old, cells, names) for old in (rows.puzzles, rows.solutions))
    return Jigsaws(puzzles, in_reading_order(moved(rows.regions, cells)), solutions, rows.ratings)


COLUMNS = ("id", "puzzle", "regions", "solution", "clues", "difficulty")
HEADER = ",".join(COLUMNS)


def write_jigsaws(path: str | os.PathLike[str], puzzles: Jigsaws) -> None:
    """Write puzzles to a file that appears whole; an unknown rating is an empty field.

    >>> write_jigsaws("puzzles.csv", generate_jigsaws(side=4, count=3))
    """

    def fields(row: int) -> str:
        boards = (
            format_board(puzzles.puzzles[row]),
            format_regions(puzzles.regions[row]),
            format_board(puzzles.solutions[row]),
        )
        rating = puzzles.ratings[row]
        shown = "" if np.isnan(rating) else f"{rating:.1f}"
        return ",".join((*boards, str(puzzles.clues[row]), shown))

    write_rows(path, HEADER, map(fields, range(len(puzzles))))


def read_jigsaws(path: str | os.PathLike[str]) -> Jigsaws:
    """Read and check a file: regions, solutions, and that no puzzle has a second solution.

    >>> write_jigsaws("puzzles.csv", generate_jigsaws(side=4, count=3))
    >>> len(read_jigsaws("puzzles.csv"))
    3
    """
    lines, columns = read_boards(path, COLUMNS, "jigsaw puzzles", _parse_row)
    puzzles, regions, solutions, ratings = columns
    found = Jigsaws(puzzles, regions, solutions, ratings.astype(np.float32))
    given = (puzzles == 0) | (puzzles == solutions)
    good = digits.valid_boards(solutions, regions) & given.all(axis=1)
    for row in np.flatnonzero(~good).tolist():
        what = "the solution does not fit puzzle and regions"
        raise DataError(f"Line {lines[row]} of {path}: {what}.")
    for row in np.flatnonzero(solve(puzzles, regions).counts != 1).tolist():
        raise DataError(f"Line {lines[row]} of {path}: the puzzle has more than one solution.")
    return found


def _parse_row(fields: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    puzzle, regions = parse_puzzle(f"{fields[1]}/{fields[2]}")
    if len(fields[3]) != len(puzzle):
        raise DataError(f"The solution has {len(fields[3])} cells, the puzzle {len(puzzle)}.")
    solution = parse_cells(fields[3], side_of(len(puzzle)))
    return puzzle, regions, solution, float(fields[5] or "nan")


DIRECTIONS = GRID_CATEGORIES[1:5]
# self; up, down, left, right in the same region; the same in another region; empty.
CATEGORIES = ("self", *DIRECTIONS, *(f"{way}, other region" for way in DIRECTIONS), "empty")


def jigsaw_graph(regions: Boards) -> InputGraph:
    """The input edges of each board."""
    side = side_of(regions.shape[1])
    grid = grid_graph(side, side, SLOTS)
    labels = torch.from_numpy(regions).long()
    other = labels[:, grid.targets.clamp(min=0)] != labels[:, :, None]  # b n k
    way = (grid.categories > 0) & (grid.targets >= 0)
    empty = grid.targets < 0
    categories = torch.where(way & other, grid.categories + len(DIRECTIONS), grid.categories)
    categories = categories.masked_fill(empty, len(CATEGORIES) - 1)
    targets = grid.targets.expand(len(regions), -1, -1)
    return InputGraph(targets, categories, len(CATEGORIES))


def batch_regions(batch: Batch) -> Boards:
    """The regions of a batch in reading order, from its edges."""
    graph = batch.known_graph
    same = (graph.categories >= 1) & (graph.categories <= len(DIRECTIONS))
    return connected_parts(torch.where(same, graph.targets, -1).cpu().numpy())


class JigsawTask(DigitTask[Jigsaws]):
    """Puzzles from a .csv file, or generated and cached.

    The split (0.9 / 0.05 / 0.05, redrawn for each seed) is by regions: no partition of an eval or
    test board occurs in training, not even rotated or mirrored.
    """

    name = "jigsaw"
    kept = Jigsaws
    text_hint = "PUZZLE/REGIONS; . or 0 is a blank"
    groupings = (Grouping("rating", "rating", RATING_BANDS), Grouping("clues", "clues"))
    quick_side = 9
    made_words = ("minimal jigsaw puzzles", "0 to")
    moved_words = "boards turned"
    seen_part = "regions"
    config: JigsawConfig

    def make_spec(self) -> InputSpec:
        spec = super().make_spec().replace(graph="given", num_edge_categories=len(CATEGORIES))
        if self.config.regions_in_tokens:
            return spec.replace(num_tokens=(self.side + 1) * self.side, alphabet=None)
        return spec

    def read(self, path: str, limit: int | None = None) -> Jigsaws:
        return read_jigsaws(path).take(slice(limit))

    def write(self, path: str | os.PathLike[str], store: Jigsaws) -> None:
        write_jigsaws(path, store)

    def rows_of(self, text: str, size: str | None = None) -> Jigsaws:
        puzzle, regions = parse_puzzle(text)
        return Jigsaws.unsolved(puzzle[None], regions[None])

    def generate(self) -> Jigsaws:
        c, workers = self.config, os.cpu_count() or 1
        return generate_jigsaws(
            c.side, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers
        )

    @property
    def cache_name(self) -> str:
        c = self.config
        return f"jigsaw-{c.side}-{c.puzzles}-extra{c.clues_extra}-seed{c.data_seed}"

    def keys(self, rows: Jigsaws) -> Keys:
        """Of regions, however rotated or mirrored."""
        return symmetry_keys(rows.regions, in_reading_order)

    def split(self, store: Jigsaws, seed: int) -> Splits:
        return split_by_key(self.keys(store), seed)

    def augmented(self, rows: Jigsaws, seed: int, step: int, progress: float) -> Jigsaws:
        if self.config.augment == "none":
            return rows
        key, turn = stream_key("augment", seed, step), self.config.augment == "all"
        return changed_jigsaws(rows, *random_changes(len(rows), rows.side, key, turn=turn))

    def batch_of(self, rows: Jigsaws) -> Batch:
        plain = super().batch_of(rows)
        tokens = plain.known_tokens
        if self.config.regions_in_tokens:
            tokens = tokens * rows.side + torch.from_numpy(rows.regions).long()
        return replace(plain, tokens=tokens, graph=jigsaw_graph(rows.regions))

    def boards(self, batch: Batch) -> tuple[Boards, Boards]:
        tokens = batch.known_tokens.cpu().numpy()
        if self.config.regions_in_tokens:
            tokens = tokens // side_of(tokens.shape[1])
        return tokens.astype(np.uint8), batch_regions(batch)

    def few_puzzles(self, count: int, seed: int) -> Batch:
        """Not rated, and no more are made than needed."""
        side, extra, parts = self.config.side, self.config.clues_extra, list[Jigsaws]()
        key = stream_key("few jigsaws", seed, side)
        for start in range(0, PATIENCE, count):
            parts.append(_attempt(side, stream(key, count, start), extra, rated=False))
            if sum(map(len, parts)) >= count:
                return self.batch_of(join_rows(parts).take(slice(count)))
        raise DataError(f"Too few of {count:,} jigsaw puzzles of side {side} found.")

    def parse(self, text: str) -> Batch:
        """`PUZZLE/REGIONS`, a symbol per cell in both."""
        rows = self.rows_of(text)
        if rows.side != self.config.side:
            cells = self.spec.num_nodes
            raise DataError(f"Expected boards of {cells} cells, got {rows.side**2}.")
        return self.batch_of(rows)

    def text(self, example: Batch) -> str:
        puzzles, regions = self.boards(example)
        return f"{format_board(puzzles[0])}/{format_regions(regions[0])}"

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """A row of a puzzle file has puzzle and regions in its second and third column."""
        for number, line in super().examples_in(text):
            if line != HEADER:
                parts = line.split(",")
                yield number, "/".join(parts[1:3]) if len(parts) == len(COLUMNS) else line

    def disguise(self, batch: Batch, number: int) -> Disguise:
        """Digits relabelled, the board turned or mirrored."""
        key = stream_key("tries", number)
        cells, names = random_changes(len(batch), self.config.side, key, turn=True)
        rows = Jigsaws.unsolved(*self.boards(batch))
        return digits.of_digits(self.batch_of(changed_jigsaws(rows, cells, names)), cells, names)

    def example_regions(self, batch: Batch) -> dict[str, np.ndarray]:
        return {"region": batch_regions(batch)}
