"""`graph-machine data`: prepare, inspect, generate, rate and draw Sudoku data."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
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

from graph_machine.errors import DataError
from graph_machine.tasks.sudoku.board import BoxShape, draw_board, format_board, parse_board
from graph_machine.tasks.sudoku.ratings import band_counts
from graph_machine.tasks.sudoku.reader import OnBad, RowReader, Rows
from graph_machine.tasks.sudoku.store import SudokuStore, prepare

Positional = tyro.conf.Positional


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


def _prepare(
    file: Positional[Path],
    out: Path | None = None,
    box: str | None = None,
    check_unique: bool = False,
    on_bad: OnBad = "error",
) -> None:
    """Check a puzzle file and pack it into a memory-mapped store.

    Args:
        file: .csv, .csv.gz or .zip with the columns id,puzzle,solution,clues,difficulty.
        out: the store's folder (FILE.store beside the file).
        box: rows x columns of a box, for example 3x3 (told from the solutions).
        check_unique: also check that every puzzle has exactly one solution.
        on_bad: stop at a bad row, or leave it out and count it.
    """
    start = time.perf_counter()
    shape = BoxShape.parse(box) if box else None
    with _progress("checking rows", None) as tell:
        store = prepare(
            file, out, box=shape, check_unique=check_unique, on_bad=on_bad, progress=tell
        )
    print(f"{len(store):,} puzzles of box {store.box} in {time.perf_counter() - start:.1f} s")
    for reason, count in store.meta["bad_rows"].items():
        print(f"left out: {count:,} rows ({reason})")
    print(f"identity {store.identity}\nstore {store.path}")


def _info(
    path: Positional[Path],
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    verify: bool = False,
) -> None:
    """Counts, clue histogram and rating bands of a file or store.

    Args:
        path: a puzzle file or a store; nothing is written.
        json_: print JSON.
        verify: read a store's every byte and compare it with the hashes in its metadata.
    """
    facts = _facts(path, verify)
    if json_:
        print(json.dumps(facts, indent=2))
        return
    print(f"{facts['puzzles']:,} puzzles of box {facts['box']}: {path}")
    for reason, count in facts["bad_rows"].items():
        print(f"bad rows: {count:,} ({reason})")
    _print_shares("clues", facts["clues"])
    _print_shares("rating", facts["ratings"])
    print(f"identity {facts['identity'] or 'of a store only'}")


def _facts(path: Path, verify: bool) -> dict[str, Any]:
    """What `info` tells; a file is read and checked, without writing a store."""
    if path.is_dir():
        store = SudokuStore.open(path, verify=verify)
        box, clues, ratings = store.box, store.clues, store.ratings
        bad, identity = store.meta.get("bad_rows", {}), store.identity
    else:
        reader = RowReader(path, on_bad="skip")
        parts = [(rows.clues, rows.ratings) for rows in reader]
        if not parts:
            raise DataError(f"The data file has a header but no rows: {path}")
        clues, ratings = (np.concatenate(values) for values in zip(*parts))
        box, bad, identity = reader.box, dict(reader.bad), None
    numbers, counts = np.unique(clues, return_counts=True)
    return {
        "puzzles": len(clues),
        "box": str(box),
        "clues": {str(n): int(c) for n, c in zip(numbers, counts)},
        "ratings": band_counts(np.asarray(ratings)),
        "bad_rows": bad,
        "identity": identity,
    }


def _print_shares(what: str, counts: dict[str, int]) -> None:
    total, most = max(1, sum(counts.values())), max(counts.values(), default=1) or 1
    print(f"\n{what:>8} {'puzzles':>11} {'share':>7}")
    for name, count in counts.items():
        bar = "█" * round(30 * count / most)
        print(f"{name:>8} {count:>11,} {100 * count / total:>6.1f}% {bar}".rstrip())


def _generate(
    count: int,
    out: Path,
    box: str = "3x3",
    seed: int = 0,
    clues: str | None = None,
    max_clues_extra: int = 0,
    workers: int | None = None,
    rate: bool = True,
) -> None:
    """Make puzzles with exactly one solution, minimal unless extra clues are asked for.

    Args:
        count: how many.
        out: the file to write (.csv or .csv.gz), in the layout of the data set.
        box: rows x columns of a box: 2x2, 2x3, 3x3, 3x4, 4x4, ...
        seed: the same seed gives the same file, whatever the number of workers.
        clues: keep only puzzles with that many clues, for example 23-26.
        max_clues_extra: put 0 to this many clues back, at random (easier puzzles).
        workers: threads (one per core).
        rate: fill the difficulty column.
    """
    from graph_machine.tasks.sudoku.generate import Recipe, generate_rows, parse_clues
    from graph_machine.tasks.sudoku.writer import write_csv

    bounds = parse_clues(clues) if clues else None
    recipe = Recipe(BoxShape.parse(box), seed, bounds, max_clues_extra, rate)
    start = time.perf_counter()
    with _progress("puzzles", count) as tell:
        rows = generate_rows(recipe, count, workers=workers or _cores(), progress=tell)
        written = write_csv(out, rows)
    seconds = time.perf_counter() - start
    print(f"{written:,} puzzles in {seconds:.1f} s ({written / seconds:,.0f}/s): {out}")


def _rate(
    target: Positional[str],
    out: Path | None = None,
    attempts: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    workers: int | None = None,
) -> None:
    """Rate a puzzle, or every puzzle of a file or store and compare with its own ratings.

    Args:
        target: a puzzle as text, a puzzle file or a store.
        out: write the puzzles with these ratings to a file.
        attempts: randomised searches per puzzle (40; the data set's own ratings used 10).
        seed: of the random searches.
        limit: rate the first rows only.
        workers: threads (one per core).
    """
    from graph_machine.tasks.sudoku.rate import ATTEMPTS, rate
    from graph_machine.tasks.sudoku.writer import write_csv

    attempts = attempts or ATTEMPTS
    if not os.path.exists(target):
        cells = _board(target, None)
        box = BoxShape.of_cells(len(cells))
        print(f"{rate(cells[None], box, seed=seed, attempts=attempts)[0]:.2f}")
        return
    rows, box = _read(Path(target), limit)
    start = time.perf_counter()
    with _progress("rated", len(rows.clues)) as tell:
        ratings = rate(
            rows.puzzles,
            box,
            rows.solutions,
            seed=seed,
            attempts=attempts,
            workers=workers or _cores(),
            progress=tell,
        )
    print(f"{len(ratings):,} puzzles rated in {time.perf_counter() - start:.1f} s")
    _print_shares("rating", band_counts(ratings))
    _print_agreement(ratings, rows.ratings)
    if out is not None:
        write_csv(out, [Rows(rows.puzzles, rows.solutions, rows.clues, ratings)])
        print(f"written: {out}")


def _print_agreement(ours: np.ndarray, theirs: np.ndarray) -> None:
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


def _draw(
    target: Positional[str],
    box: str | None = None,
    row: int = 0,
    solve: bool = False,
) -> None:
    """Draw a board.

    Args:
        target: a puzzle as text (81 symbols for 3x3), or a file or store to take `row` from.
        box: rows x columns of a box (the usual one for that many cells).
        row: which puzzle of a file or store, counted from 0.
        solve: fill in the solution.
    """
    shape = BoxShape.parse(box) if box else None
    if os.path.exists(target):
        rows, shape = _read(Path(target), row + 1)
        if row < 0 or row >= len(rows.clues):
            raise DataError(f"Row {row} of {len(rows.clues)} rows: {target}")
        puzzle = rows.puzzles[row]
    else:
        puzzle = _board(target, shape)
        shape = shape or BoxShape.of_cells(len(puzzle))
    filled = _solution(puzzle, shape) if solve else None
    console = Console()
    console.print(draw_board(puzzle, shape, filled=filled, marks=not console.is_terminal))
    if filled is not None:
        print(format_board(filled))


def _solution(puzzle: np.ndarray, box: BoxShape) -> np.ndarray:
    from graph_machine.tasks.sudoku.solve import solve

    solved = solve(puzzle[None], box)
    if solved.counts[0] == 0:
        raise DataError("The puzzle has no solution.")
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


COMMANDS = {
    "prepare": _prepare,
    "info": _info,
    "generate": _generate,
    "rate": _rate,
    "draw": _draw,
}


def main(argv: list[str]) -> int | None:
    tyro.extras.subcommand_cli_from_dict(
        COMMANDS, args=argv, prog="graph-machine data", description=__doc__
    )
    return None
