"""What `graph-machine data` does, once its options are read (see data.py)."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from graph_machine.config import SudokuConfig
from graph_machine.errors import DataError
from graph_machine.files import refuse_to_replace
from graph_machine.tasks.sudoku.board import (
    BoxShape,
    contradiction,
    draw_board,
    format_board,
    parse_board,
)
from graph_machine.tasks.sudoku.layouts import BACKTRACKS
from graph_machine.tasks.sudoku.ratings import BACKTRACK_BANDS, RATING_BANDS, band_counts
from graph_machine.tasks.sudoku.reader import RowReader, Rows
from graph_machine.tasks.sudoku.store import SudokuStore
from graph_machine.tasks.sudoku.store import prepare as prepare_store

if TYPE_CHECKING:
    from graph_machine.cli.data import Draw, Generate, Info, Prepare, Rate


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f}/s")


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is told how much is done; nothing if that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), _Speed(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done: bars.update(bar, completed=done)


def prepare(args: "Prepare") -> None:
    start = time.perf_counter()
    shape = BoxShape.parse(args.box) if args.box else None
    with _progress("checking rows", None) as tell:
        store = prepare_store(
            args.file,
            args.out,
            box=shape,
            check_unique=args.check_unique,
            on_bad=args.on_bad,
            progress=tell,
        )
    print(f"{len(store):,} puzzles of box {store.box} in {time.perf_counter() - start:.1f} s")
    for reason, count in store.meta["bad_rows"].items():
        print(f"left out: {count:,} rows ({reason})")
    print(f"identity {store.identity}\nstore {store.path}")


def info(args: "Info") -> None:
    facts = _facts(args.path, args.verify)
    if args.json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{facts['puzzles']:,} puzzles of box {facts['box']}: {args.path}")
    for reason, count in facts["bad_rows"].items():
        print(f"bad rows: {count:,} ({reason})")
    print_shares("clues", facts["clues"])
    print_shares("rating", facts["ratings"])
    print(f"identity {facts['identity'] or 'of a store only'}")


def _facts(path: Path, verify: bool) -> dict[str, Any]:
    """What `info` tells; a file is read and checked, without writing a store."""
    if path.is_dir():
        store = SudokuStore.open(path, verify=verify)
        box, clues, ratings = store.box, store.clues, store.ratings
        bad, identity = store.meta.get("bad_rows", {}), store.identity
        scale = store.meta.get("rating_scale")
    else:
        reader = RowReader(path, on_bad="skip")
        parts = [(rows.clues, rows.ratings) for rows in reader]
        if not parts:
            raise DataError(f"The data file has a header but no rows: {path}")
        clues, ratings = (np.concatenate(values) for values in zip(*parts))
        box, bad, identity = reader.box, dict(reader.bad), None
        scale = reader.layout and reader.layout.scale
    numbers, counts = np.unique(clues, return_counts=True)
    bands = BACKTRACK_BANDS if scale == BACKTRACKS else RATING_BANDS
    return {
        "puzzles": len(clues),
        "box": str(box),
        "clues": {str(n): int(c) for n, c in zip(numbers, counts)},
        "ratings": band_counts(np.asarray(ratings), bands),
        "bad_rows": bad,
        "identity": identity,
    }


def print_shares(what: str, counts: dict[str, int], of: str = "puzzles") -> None:
    """How many there are of each, and a bar for it."""
    total, most = max(1, sum(counts.values())), max(counts.values(), default=1) or 1
    width = max(8, *map(len, counts)) if counts else 8
    print(f"\n{what:>{width}} {of:>11} {'share':>7}")
    for name, count in counts.items():
        bar = "█" * round(30 * count / most)
        print(f"{name:>{width}} {count:>11,} {100 * count / total:>6.1f}% {bar}".rstrip())


def generate(args: "Generate") -> None:
    from graph_machine.tasks.sudoku.generate import Recipe, generate_rows, parse_clues
    from graph_machine.tasks.sudoku.writer import write_csv

    refuse_to_replace(args.out, args.force)
    bounds = parse_clues(args.clues) if args.clues else None
    box = BoxShape.parse(args.box)
    recipe = Recipe(box, args.seed, bounds, args.max_clues_extra, args.rate)
    start = time.perf_counter()
    with _progress("puzzles", args.count) as tell:
        workers = args.workers or _cores()
        rows = generate_rows(recipe, args.count, workers=workers, progress=tell)
        written = write_csv(args.out, rows)
    seconds = time.perf_counter() - start
    print(f"{written:,} puzzles in {seconds:.1f} s ({written / seconds:,.0f}/s): {args.out}")
    if args.seed == SudokuConfig().data_seed:
        print(
            f"Seed {args.seed} also makes the puzzles that models are trained on: choose another "
            "--seed for a test set.",
            file=sys.stderr,
        )


def rate(args: "Rate") -> None:
    from graph_machine.tasks.sudoku.rate import rate as rated
    from graph_machine.tasks.sudoku.writer import write_csv

    how = {"seed": args.seed, "attempts": args.attempts}
    if not os.path.exists(args.target):
        cells = _board(args.target, None)
        print(f"{rated(cells[None], BoxShape.of_cells(len(cells)), **how)[0]:.2f}")
        return
    if args.out is not None:
        refuse_to_replace(args.out, args.force)
    rows, box = _read(Path(args.target), args.limit)
    start = time.perf_counter()
    with _progress("rated", len(rows.clues)) as tell:
        workers = args.workers or _cores()
        ratings = rated(rows.puzzles, box, rows.solutions, workers=workers, progress=tell, **how)
    print(f"{len(ratings):,} puzzles rated in {time.perf_counter() - start:.1f} s")
    print_shares("rating", band_counts(ratings))
    print_agreement(ratings, rows.ratings)
    if args.out is not None:
        write_csv(args.out, [Rows(rows.puzzles, rows.solutions, rows.clues, ratings)])
        print(f"written: {args.out}")


def print_agreement(ours: np.ndarray, theirs: np.ndarray) -> None:
    """How ratings compare with those that a file had, if it had any."""
    known = ~np.isnan(theirs)
    if not known.any():
        return
    ours, theirs = ours[known], theirs[known]
    same = np.mean((ours == 0) == (theirs == 0))
    print(f"\n0 here where the file says 0, and nowhere else: {100 * same:.2f}% of the rows")
    guessed = (theirs > 0) & (ours > 0)
    if guessed.sum() > 2 and np.std(theirs[guessed]) and np.std(ours[guessed]):
        pearson = np.corrcoef(ours[guessed], theirs[guessed])[0, 1]
        print(f"Pearson correlation on the rest: {pearson:.3f}")


def draw(args: "Draw") -> None:
    shape = BoxShape.parse(args.box) if args.box else None
    if os.path.exists(args.target):
        rows, shape = _read(Path(args.target), args.row + 1)
        if args.row >= len(rows.clues):
            raise DataError(f"Row {args.row} of {len(rows.clues)} rows: {args.target}")
        puzzle = rows.puzzles[args.row]
    else:
        puzzle = _board(args.target, shape)
        shape = shape or BoxShape.of_cells(len(puzzle))
    filled = _solution(puzzle, shape) if args.solve else None
    console = Console()
    console.print(draw_board(puzzle, shape, filled=filled, marks=not console.is_terminal))
    if filled is not None:
        print(format_board(filled))


def _solution(puzzle: np.ndarray, box: BoxShape) -> np.ndarray:
    from graph_machine.tasks.sudoku.solve import solve

    solved = solve(puzzle[None], box)
    if solved.counts[0] == 0:
        raise DataError(contradiction(puzzle, box) or "The puzzle has no solution.")
    if solved.counts[0] > 1:
        print("The puzzle has more than one solution; this is one of them.")
    return solved.solutions[0]


def _board(text: str, box: BoxShape | None) -> np.ndarray:
    if "/" in text or text.endswith((".csv", ".gz", ".zip", ".store")):
        raise DataError(f"There is no such file or store: {text}")
    return parse_board(text, box)


def _read(path: Path, limit: int | None) -> tuple[Rows, BoxShape]:
    """The first rows of a file or store."""
    if path.is_dir():
        store = SudokuStore.open(path)
        part = slice(limit)
        arrays = (store.puzzles, store.solutions, store.clues, store.ratings)
        return Rows(*(np.asarray(values[part]) for values in arrays)), store.box
    reader = RowReader(path)
    parts: list[Rows] = []
    for rows in reader:
        parts.append(rows)
        if limit is not None and sum(len(part.clues) for part in parts) >= limit:
            break
    if not parts or reader.box is None:
        raise DataError(f"The data file has a header but no rows: {path}")
    names = ("puzzles", "solutions", "clues", "ratings")
    joined = (np.concatenate([getattr(part, name) for part in parts])[:limit] for name in names)
    return Rows(*joined), reader.box


def _cores() -> int:
    """The cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1
