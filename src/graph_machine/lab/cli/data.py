"""`graph-machine data`: prepare, inspect, generate, rate and draw boards.

Boards are read, rated and drawn by their tasks. Heavy imports wait until the options are parsed.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from graph_machine.errors import ConfigError, DataError, count_of
from graph_machine.files import refuse_to_replace
from graph_machine.lab.cli import _options as opt
from graph_machine.lab.cli._options import Count, CountOrZero, Positional, Seed, options

if TYPE_CHECKING:
    import numpy as np

    from graph_machine.lab.tasks.boards import BoardTask
    from graph_machine.lab.tasks.scores import Grouping

Table = Annotated[Path, opt.Endings((".csv", ".csv.gz"))]
SUDOKU = "sudoku"
NEW_SEED = 1  # not 0, the seed of generated training data: a new file holds unseen puzzles
FILES = (".csv", ".gz", ".zip", ".store")  # endings by which a word is a file, not a board
LEAST = 20  # boards that a config takes; a smaller file is cut from that many


@options
class Prepare:
    """Check a puzzle file and pack it into a memory-mapped store."""

    file: Positional[Path]  # .csv, .csv.gz or .zip; docs/data.md lists the columns that are read
    out: Path | None = None  # the store's folder; default: FILE.store beside the file
    box: str | None = None
    """rows x columns of a box, for example 3x3; default: derived from the solutions"""
    check_unique: bool = False  # also check that every puzzle has exactly one solution
    on_bad: Literal["error", "skip"] = "error"
    """stop at a bad row, or leave it out and count it"""


@options
class Info:
    """Counts, clue histogram and rating bands of a file or store."""

    path: Positional[Path]  # a puzzle file or a store; nothing is written
    task: str = SUDOKU  # sudoku; or jigsaw or maze
    json: bool = False  # print JSON
    verify: bool = False  # read a store's every byte and compare it with the hashes in its metadata


@options
class Generate:
    """Make puzzles with exactly one solution, minimal unless extra clues are requested."""

    count: Count  # how many
    out: Table  # the file to write (.csv or .csv.gz), in the layout of the data set
    box: str = "3x3"
    """rows x columns of a box: 2x2, 2x3, 3x3, 3x4, 4x4, ..."""
    seed: Seed = NEW_SEED
    """the same seed gives the same file, whatever the number of workers; 0 makes the puzzles that
    models are trained on"""
    clues: str | None = None  # keep only puzzles with this many clues, for example 23-26
    max_clues_extra: CountOrZero = 0  # put 0 to this many clues back, at random (easier puzzles)
    task: str = SUDOKU  # sudoku; or jigsaw or maze, whose boards are described by --set
    set: tuple[str, ...] = ()  # settings of jigsaw and maze, such as task.side=6 task.clues_extra=4
    workers: Count | None = None  # threads; default: one per core
    rate: bool = True  # fill the difficulty column
    force: bool = False  # replace an existing file


@options
class Rate:
    """Rate a puzzle, or every puzzle of a file or store and compare with its own ratings."""

    target: Positional[str]  # a puzzle as text, a puzzle file or a store
    task: str = SUDOKU  # sudoku; or jigsaw, whose puzzles are PUZZLE/REGIONS
    out: Table | None = None  # write the puzzles with these ratings to a file
    attempts: Count = 40  # randomised searches per puzzle; the data set's own ratings used 10
    seed: Seed = 0  # of the random searches
    limit: Count | None = None  # rate only the first N rows
    workers: Count | None = None  # threads; default: one per core
    force: bool = False  # replace an existing file


@options
class Draw:
    """Draw a board."""

    target: Positional[str]
    """a puzzle as text (81 symbols for 3x3), or a file or store to take --row from"""
    box: str | None = None
    """rows x columns of a box; default: the usual one for this number of cells"""
    row: CountOrZero = 0  # which puzzle of a file or store, counted from 0
    solve: bool = False  # fill in the solution
    task: str = SUDOKU  # sudoku; jigsaw, whose puzzles are PUZZLE/REGIONS; or maze


def main(argv: list[str]) -> int:
    args = opt.read_subcommand({kind.__name__.lower(): kind for kind in WORK}, argv, "data")
    if getattr(args, "task", SUDOKU) == SUDOKU and getattr(args, "set", ()):
        raise ConfigError("--set is for --task jigsaw and maze; Sudoku has --box and --clues.")
    if isinstance(args, Generate | Rate) and args.out is not None:
        refuse_to_replace(args.out, args.force)
    WORK[type(args)](args)
    return 0


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, and the function that moves it; no bar without a terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done: bars.update(bar, completed=done)


def board_task(name: str, settings: tuple[str, ...] = ()) -> "BoardTask[Any]":
    """The task of this name, if its examples are boards that are written to files."""
    from graph_machine.lab.conditions.budgets import with_settings
    from graph_machine.lab.conditions.registry import BASE
    from graph_machine.lab.config import TASK_CONFIGS
    from graph_machine.lab.tasks.base import task_of
    from graph_machine.lab.tasks.boards import BoardTask

    config = with_settings(BASE.replace(task=TASK_CONFIGS[name]()), settings).task
    task = task_of(config)
    if not isinstance(task, BoardTask):
        raise ConfigError(
            f"The task {name} has no files of examples; --task takes sudoku, jigsaw, maze."
        )
    return task


def _target_boards(args: Rate | Draw, limit: int | None) -> "tuple[BoardTask[Any], Any, bool]":
    """The task, the boards of a file or store or the one that is given as text, and whether it is
    a file."""
    task, target = board_task(args.task), args.target
    if os.path.exists(target):
        return task, task.read(target, limit), True
    # A missing file should not be reported as a bad board.
    if target.endswith(FILES) or (args.task == SUDOKU and "/" in target):
        raise DataError(f"There is no such file or store: {target}")
    return task, task.rows_of(target, getattr(args, "box", None)), False


def prepare_file(args: Prepare) -> None:
    from graph_machine.lab.tasks.sudoku.board import BoxShape
    from graph_machine.lab.tasks.sudoku.store import prepare

    start = time.perf_counter()
    with _progress("checking rows", None) as report:
        store = prepare(
            args.file,
            args.out,
            box=BoxShape.parse(args.box) if args.box else None,
            check_unique=args.check_unique,
            on_bad=args.on_bad,
            progress=report,
        )
    print(f"{len(store):,} puzzles of box {store.box} in {time.perf_counter() - start:.1f} s")
    for reason, count in store.meta["bad_rows"].items():
        print(f"left out: {count:,} rows ({reason})")
    print(f"identity {store.identity}\nstore {store.path}")


def file_info(args: Info) -> None:
    """Counts of a file by the groups in which its task is reported: ratings and clues, or steps."""
    task = board_task(args.task)
    facts, values = task.contents(str(args.path), verify=args.verify)
    groups = [(by, counted(values[by.group], by)) for by in task.groupings]
    word, total = task.examples_word, len(next(iter(values.values())))
    if args.json:
        # Scripts know the ratings of Sudoku under this name.
        names = {"rating": "ratings"} if args.task == SUDOKU else {}
        shown = {names.get(by.group, by.title): counts for by, counts in groups}
        print(json.dumps({"task": args.task, word: total, **facts, **shown}, indent=2))
        return
    kind = next(iter(facts))  # the box, or the side
    print(f"{total:,} {word} of {kind} {facts[kind]}: {args.path}")
    for reason, count in facts.get("bad_rows", {}).items():
        print(f"bad rows: {count:,} ({reason})")
    for by, counts in groups:
        print_shares(by.title, counts, word)
    print(f"identity {facts['identity'] or 'of a store only'}")


def counted(values: "np.ndarray", by: "Grouping") -> dict[str, int]:
    """The number of values in each band, or of each value; unrated ones only if there are some."""
    found = {label: int(rows.sum()) for label, rows in by.rows(values).items()}
    unknown = len(values) - sum(found.values())
    return found | ({"unrated": unknown} if unknown else {})


def print_shares(what: str, counts: dict[str, int], of: str) -> None:
    """The count and the share of each, with a bar."""
    total, most = max(1, sum(counts.values())), max(counts.values(), default=1) or 1
    width = max(8, *map(len, counts)) if counts else 8
    print(f"\n{what:>{width}} {of:>11} {'share':>7}")
    for name, count in counts.items():
        bar = "█" * round(30 * count / most)
        print(f"{name:>{width}} {count:>11,} {100 * count / total:>6.1f}% {bar}".rstrip())


def generate_file(args: Generate) -> None:
    start = time.perf_counter()
    if args.task == SUDOKU:
        made = f"{_generate_sudoku(args):,} puzzles"
    else:
        made = _generate_others(args)
    print(f"{made} in {time.perf_counter() - start:.1f} s: {args.out}")


def _generate_sudoku(args: Generate) -> int:
    from graph_machine.lab.config import SudokuConfig
    from graph_machine.lab.tasks.sudoku.board import BoxShape
    from graph_machine.lab.tasks.sudoku.generate import generate_rows, parse_clues
    from graph_machine.lab.tasks.sudoku.reader import write_puzzles

    box, clues = BoxShape.parse(args.box), parse_clues(args.clues) if args.clues else None
    how: dict[str, Any] = {"clues": clues, "extra": args.max_clues_extra, "rated": args.rate}
    how |= {"workers": args.workers or _cores()}
    with _progress("puzzles", args.count) as report:
        rows = generate_rows(box, args.count, args.seed, progress=report, **how)
        written = write_puzzles(args.out, rows)
    if args.seed == SudokuConfig().data_seed:
        warning = "makes the puzzles that models are trained on: choose another for a test set."
        print(f"--seed {args.seed} {warning}", file=sys.stderr)
    return written


def _generate_others(args: Generate) -> str:
    """Boards as `args.set` describes them, such as `task.side=6`."""
    for name in ("box", "clues", "max_clues_extra", "workers", "rate"):
        if getattr(args, name) != getattr(Generate, name):
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} is for Sudoku; {args.task} has --set task.NAME=...")
    task = board_task(args.task, args.set)
    for setting in args.set:
        key = setting.partition("=")[0]
        if not key.startswith("task."):
            raise ConfigError(f"--set takes settings of the task (task.NAME=...), got '{key}'.")
        if key in ("task.data_seed", f"task.{task.count_field}"):
            option = "--seed" if key == "task.data_seed" else "--count"
            raise ConfigError(f"{key} is given by {option} here; leave it out of --set.")
    counts = {task.count_field: max(LEAST, args.count), "data_seed": args.seed}
    task = type(task)(task.config.replace(**counts))
    task.write(args.out, task.generate().take(slice(args.count)))
    return count_of(args.count, task.examples_word)


def rate_boards(args: Rate) -> None:
    """Rate one puzzle, or those of a file, and compare with the file's own ratings."""
    task, store, is_file = _target_boards(args, args.limit)
    start = time.perf_counter()
    with _progress("rated", len(store)) as report:
        how = {"seed": args.seed, "attempts": args.attempts, "workers": args.workers or _cores()}
        ratings = task.rate(store, progress=report, **how)
    if not is_file:
        print(f"{ratings[0]:.2f}")
        return
    word = task.examples_word
    print(f"{len(ratings):,} {word} rated in {time.perf_counter() - start:.1f} s")
    by = next(by for by in task.groupings if by.group == "rating")
    print_shares(by.title, counted(ratings, by), word)
    print_agreement(ratings, store.ratings)
    if args.out is not None:
        task.write(args.out, replace(store, ratings=ratings))
        print(f"written: {args.out}")


def print_agreement(ours: "np.ndarray", theirs: "np.ndarray") -> None:
    """How ratings compare with those of the file, if it has any."""
    import numpy as np

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


def draw_target(args: Draw) -> None:
    """Draw a board that is given as text, or is in a row of a file."""
    from rich.console import Console

    if args.box is not None and args.task != SUDOKU:
        raise ConfigError(f"--box is for Sudoku; a board of {args.task} implies its size.")
    task, store, is_file = _target_boards(args, args.row + 1)
    row = args.row if is_file else 0
    if row >= len(store):
        raise DataError(f"Row {row} of {len(store)} rows: {args.target}")
    console = Console(highlight=False)
    marks = not console.is_terminal
    picture, solution, note = task.picture(store, row, solution=args.solve, marks=marks)
    if note:
        print(note)
    console.print(picture)
    if solution is not None:
        print(solution)


def _cores() -> int:
    """The cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


# What each subcommand calls.
WORK: dict[type, Callable[..., None]] = {
    Prepare: prepare_file,
    Info: file_info,
    Generate: generate_file,
    Rate: rate_boards,
    Draw: draw_target,
}
