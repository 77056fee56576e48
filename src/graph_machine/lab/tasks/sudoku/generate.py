"""Making puzzles: a random full grid, clues taken away in random order until none can go.

Attempt number i of a seed is a function of only (box, seed, i). Attempts are made in blocks by
any number of threads (the kernels release the GIL) and looked at in order, so the same seed gives
the same puzzles whatever the number of workers. Needs the extra `data`.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8, UInt64
from rich.console import Console
from rich.progress import Progress

from graph_machine.errors import DataError
from graph_machine.files import cache_folder, file_lock
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.digits import NO_BUDGET
from graph_machine.lab.tasks.rows import in_threads, join_rows, mix, stream, stream_key
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.reader import Rows
from graph_machine.lab.tasks.sudoku.solve import DATASET_ATTEMPTS, NINE, rate_seeded
from graph_machine.lab.tasks.sudoku.store import META, SudokuStore, write_store

# Up to this side a puzzle is minimal in the strict sense. On larger boards a clue also stays if
# the proof that it can go takes more guesses than BUDGET: a few proofs would take for ever.
STRICT_SIDE = 10
BUDGET = 1000
# That many attempts in a row without a new puzzle end the search for more.
PATIENCE = 50_000


@dataclass(frozen=True)
class Recipe:
    """What to generate. `clues` bounds the number of givens; up to `extra` are put back."""

    box: BoxShape
    seed: int = 0
    clues: tuple[int, int] | None = None
    extra: int = 0
    rated: bool = True

    def __post_init__(self) -> None:
        low, high = self.clues or (0, self.box.cells)
        if not 0 <= low <= high:
            raise DataError(f"Clue range {low}-{high}: the first must not exceed the second.")
        if self.extra < 0:
            raise DataError(f"Extra clues must be at least 0, got {self.extra}.")


def parse_clues(text: str) -> tuple[int, int]:
    """Read `23-26` or `24`."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise DataError(f"Clue range '{text}': expected LOW-HIGH, for example 23-26.")
    return int(match[1]), int(match[2] or match[1])


def generate(
    box: BoxShape,
    count: int,
    seed: int = 0,
    *,
    clues: tuple[int, int] | None = None,
    extra: int = 0,
    rated: bool = True,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> SudokuStore:
    """`count` distinct puzzles, as a store in memory.

    >>> generate(BoxShape(2, 2), count=5, seed=0, clues=(5, 5)).clues
    array([5, 5, 5, 5, 5], dtype=uint16)
    """
    recipe = Recipe(box, seed, clues, extra, rated)
    rows = join_rows([*generate_rows(recipe, count, workers=workers, progress=progress)])
    return SudokuStore.from_arrays(rows.puzzles, rows.solutions, rows.ratings, box)


def generate_rows(
    recipe: Recipe,
    count: int,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Rows]:
    """Yield `count` puzzles in parts, no two equal up to a relabelling of their digits."""
    if count < 1:
        raise DataError(f"The number of puzzles must be at least 1, got {count}.")
    seen: set[int] = set()
    made = barren = tried = 0
    for block in _attempts(recipe, count, workers):
        keep = (block.clues > 0) & _unseen(block.puzzles, block.clues > 0, recipe.box, seen)
        found = np.flatnonzero(keep)[: count - made]
        tried += len(keep)
        barren = 0 if found.size else barren + len(keep)
        made += found.size
        if found.size:
            yield block.take(found)
            if progress is not None:
                progress(made)
        if made >= count:
            return
        if barren >= PATIENCE:
            raise DataError(_exhausted(recipe, count, made, tried))


def _exhausted(recipe: Recipe, count: int, made: int, tried: int) -> str:
    wish = "" if recipe.clues is None else f" with {recipe.clues[0]} to {recipe.clues[1]} clues"
    return (
        f"Only {made:,} of {count:,} distinct puzzles{wish} found for box {recipe.box} in {tried:,}"
        f" attempts, none in the last {PATIENCE:,}: "
        + (f"ask for at most {made:,}, or allow more with " if made else "allow more with ")
        + "--clues or --max-clues-extra."
    )


def _attempts(recipe: Recipe, count: int, workers: int) -> Iterator[Rows]:
    """Blocks of attempts in order; `clues` is 0 where an attempt missed the clue range."""
    key = stream_key("generate", recipe.seed, recipe.box.rows, recipe.box.cols)
    # A block takes a fraction of a second, so that the progress bar moves.
    size = min(max(4, count), 4 if recipe.box.side > STRICT_SIDE else 32768 // recipe.box.cells)
    return in_threads(lambda seeds: _attempt(recipe, seeds), key, size, workers)


def _attempt(recipe: Recipe, seeds: UInt64[np.ndarray, "b"]) -> Rows:
    box = recipe.box
    low, high = recipe.clues or (0, box.cells)
    puzzles = np.zeros((len(seeds), box.cells), dtype=np.uint8)
    solutions = np.zeros_like(puzzles)
    clues = np.zeros(len(seeds), dtype=np.int64)
    if box == NINE:
        nine = load_kernels("sudoku.kernels_nine", "Generating Sudoku")
        nine.generate_all(seeds, low, high, recipe.extra, puzzles, solutions, clues)
    else:
        general = load_kernels("sudoku.kernels_any", "Generating Sudoku")
        state = general.make_state(box.units)
        budget = NO_BUDGET if box.side <= STRICT_SIDE else BUDGET
        general.generate_all(
            state, seeds, low, high, recipe.extra, (budget, NO_BUDGET), puzzles, solutions, clues
        )
    ratings = np.full(len(seeds), np.nan, dtype=np.float32)
    hits = clues > 0
    if recipe.rated:
        ratings[hits] = rate_seeded(
            puzzles[hits], solutions[hits], box, mix(seeds[hits]), DATASET_ATTEMPTS
        )
    return Rows(puzzles, solutions, clues.astype(np.uint16), ratings)


def _unseen(
    puzzles: UInt8[np.ndarray, "b n"],
    wanted: Bool[np.ndarray, "b"],
    box: BoxShape,
    seen: set[int],
) -> Bool[np.ndarray, "b"]:
    """Which wanted puzzles are new; their fingerprints are added to `seen`."""
    new = np.zeros(len(puzzles), dtype=bool)
    for row, mark in enumerate(fingerprints(puzzles, box).tolist()):
        if wanted[row] and mark not in seen:
            seen.add(mark)
            new[row] = True
    return new


def fingerprints(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt64[np.ndarray, "b"]:
    """64 bits of each puzzle that do not depend on how its digits are named.

    Digits are renamed in the order in which they first appear, then the cells are hashed. Two
    different puzzles that share a fingerprint (odds of 1 in 4 million among 3 million of them)
    would be taken for equal; that costs one puzzle and lets no duplicate through.
    """
    labels = np.zeros((len(puzzles), box.side + 1), dtype=np.uint64)
    first = np.full((len(puzzles), box.side), box.cells)
    for digit in range(1, box.side + 1):
        hits = puzzles == digit
        first[:, digit - 1] = np.where(hits.any(axis=1), hits.argmax(axis=1), box.cells)
    rank = np.argsort(np.argsort(first, axis=1, kind="stable"), axis=1)
    labels[:, 1:] = rank + 1
    named = np.take_along_axis(labels, puzzles.astype(np.int64), axis=1)
    weights = stream(stream_key("finger"), box.cells) | np.uint64(1)
    return (mix(named + np.uint64(1)) * weights).sum(axis=1, dtype=np.uint64)


def generated_path(config: SudokuConfig) -> Path:
    """Where the puzzles of this config are kept; every setting that matters is in the name."""
    extra = f"-extra{config.clues_extra}" if config.clues_extra else ""
    name = f"sudoku-{config.box}-{config.puzzles}{extra}-seed{config.data_seed}.store"
    return cache_folder() / name


def generated_data(config: SudokuConfig) -> SudokuStore:
    """The store of this config's puzzles. Runs that start at the same time generate them once."""
    path = generated_path(config)
    if (path / META).exists():
        return SudokuStore.open(path)
    with file_lock(path.with_name(path.name + ".lock")):
        if not (path / META).exists():
            _generate(config, path)
    return SudokuStore.open(path)


def _generate(config: SudokuConfig, path: Path) -> None:
    box = BoxShape.parse(config.box)
    recipe = Recipe(box, config.data_seed, extra=config.clues_extra)
    about = {"generated": config.to_dict()}
    elsewhere = "GRAPH_MACHINE_CACHE=FOLDER"
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bars:
        bar = bars.add_task("generating puzzles (once)", total=config.puzzles)
        rows = generate_rows(
            recipe,
            config.puzzles,
            workers=os.cpu_count() or 1,
            progress=lambda done: bars.update(bar, completed=done),
        )
        write_store(path, rows, lambda: box, lambda: about, elsewhere=elsewhere)
