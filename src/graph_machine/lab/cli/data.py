"""`graph-machine data`: prepare, inspect, generate, rate and draw boards.

Sudoku has its own store, solver and generator (`*_sudoku` below); jigsaw and maze boards are made,
read and drawn by their tasks (`*_boards`). Heavy imports wait until the options are parsed.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from graph_machine.errors import ConfigError, DataError, count_of
from graph_machine.lab.cli._options import Count, CountOrZero, Seed, options, read_subcommand

if TYPE_CHECKING:
    import numpy as np

    from graph_machine.lab.tasks.boards import BoardTask
    from graph_machine.lab.tasks.scores import Grouping
    from graph_machine.lab.tasks.sudoku.board import BoxShape
    from graph_machine.lab.tasks.sudoku.reader import Rows

Positional = tyro.conf.Positional
SUDOKU = "sudoku"
NEW_SEED = 1  # not 0, the seed of generated training data: a new file holds unseen puzzles
FILES = (".csv", ".gz", ".zip", ".store")  # endings by which a word is a file, not a board
AT_ONCE = 4096  # boards that `info` looks at together
LEAST = 20  # boards that a config takes; a smaller file is cut from that many


@options
class Prepare:
    """Check a puzzle file and pack it into a memory-mapped store."""

    file: Positional[Path]
    """.csv, .csv.gz or .zip; docs/data.md lists the columns that are read"""
    out: Path | None = None
    """the store's folder; default: FILE.store beside the file"""
    box: str | None = None
    """rows x columns of a box, for example 3x3; default: derived from the solutions"""
    check_unique: bool = False
    """also check that every puzzle has exactly one solution"""
    on_bad: Literal["error", "skip"] = "error"
    """stop at a bad row, or leave it out and count it"""


@options
class Info:
    """Counts, clue histogram and rating bands of a file or store."""

    path: Positional[Path]
    """a puzzle file or a store; nothing is written"""
    task: str = SUDOKU
    """sudoku; or jigsaw or maze"""
    json: bool = False
    """print JSON"""
    verify: bool = False
    """read a store's every byte and compare it with the hashes in its metadata"""


@options
class Generate:
    """Make puzzles with exactly one solution, minimal unless extra clues are requested."""

    count: Count
    """how many"""
    out: Path
    """the file to write (.csv or .csv.gz), in the layout of the data set"""
    box: str = "3x3"
    """rows x columns of a box: 2x2, 2x3, 3x3, 3x4, 4x4, ..."""
    seed: Seed = NEW_SEED
    """the same seed gives the same file, whatever the number of workers; 0 makes the puzzles that
    models are trained on"""
    clues: str | None = None
    """keep only puzzles with this many clues, for example 23-26"""
    max_clues_extra: CountOrZero = 0
    """put 0 to this many clues back, at random (easier puzzles)"""
    task: str = SUDOKU
    """sudoku; or jigsaw or maze, whose boards are described by --set"""
    set: tuple[str, ...] = ()
    """settings of jigsaw and maze, such as task.side=6 task.clues_extra=4"""
    workers: Count | None = None
    """threads; default: one per core"""
    rate: bool = True
    """fill the difficulty column"""
    force: bool = False
    """replace an existing file"""


@options
class Rate:
    """Rate a puzzle, or every puzzle of a file or store and compare with its own ratings."""

    target: Positional[str]
    """a puzzle as text, a puzzle file or a store"""
    task: str = SUDOKU
    """sudoku; or jigsaw, whose puzzles are PUZZLE/REGIONS"""
    out: Path | None = None
    """write the puzzles with these ratings to a file"""
    attempts: Count = 40
    """randomised searches per puzzle; the data set's own ratings used 10"""
    seed: Seed = 0
    """of the random searches"""
    limit: Count | None = None
    """rate only the first N rows"""
    workers: Count | None = None
    """threads; default: one per core"""
    force: bool = False
    """replace an existing file"""


@options
class Draw:
    """Draw a board."""

    target: Positional[str]
    """a puzzle as text (81 symbols for 3x3), or a file or store to take --row from"""
    box: str | None = None
    """rows x columns of a box; default: the usual one for this number of cells"""
    row: CountOrZero = 0
    """which puzzle of a file or store, counted from 0"""
    solve: bool = False
    """fill in the solution"""
    task: str = SUDOKU
    """sudoku; jigsaw, whose puzzles are PUZZLE/REGIONS; or maze"""


def main(argv: list[str]) -> int:
    args = read_subcommand({kind.__name__.lower(): kind for kind in WORK}, argv, "data")
    sudoku = getattr(args, "task", SUDOKU) == SUDOKU
    if sudoku and getattr(args, "set", ()):
        raise ConfigError("--set is for --task jigsaw and maze; Sudoku has --box and --clues.")
    if isinstance(args, Generate | Rate) and args.out is not None:
        from graph_machine.files import refuse_to_replace

        endings = (".csv", ".csv.gz") if sudoku else (".csv",)
        if not args.out.name.endswith(endings):
            raise ConfigError(f"--out should end in {' or '.join(endings)}, got '{args.out.name}'.")
        refuse_to_replace(args.out, args.force)
    WORK[type(args)][0 if sudoku else 1](args)
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


def prepare_sudoku(args: Prepare) -> None:
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


def info_sudoku(args: Info) -> None:
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
    """What `info` prints; a file is read and checked, without writing a store."""
    import numpy as np

    from graph_machine.lab.tasks.sudoku.reader import BACKTRACKS, RowReader
    from graph_machine.lab.tasks.sudoku.solve import BACKTRACK_BANDS, RATING_BANDS, band_counts
    from graph_machine.lab.tasks.sudoku.store import SudokuStore

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
    """The count and the share of each, with a bar."""
    total, most = max(1, sum(counts.values())), max(counts.values(), default=1) or 1
    width = max(8, *map(len, counts)) if counts else 8
    print(f"\n{what:>{width}} {of:>11} {'share':>7}")
    for name, count in counts.items():
        bar = "█" * round(30 * count / most)
        print(f"{name:>{width}} {count:>11,} {100 * count / total:>6.1f}% {bar}".rstrip())


def generate_sudoku(args: Generate) -> None:
    from graph_machine.lab.config import SudokuConfig
    from graph_machine.lab.tasks.sudoku.board import BoxShape
    from graph_machine.lab.tasks.sudoku.generate import Recipe, generate_rows, parse_clues
    from graph_machine.lab.tasks.sudoku.reader import write_puzzles

    bounds = parse_clues(args.clues) if args.clues else None
    recipe = Recipe(BoxShape.parse(args.box), args.seed, bounds, args.max_clues_extra, args.rate)
    start = time.perf_counter()
    with _progress("puzzles", args.count) as report:
        workers = args.workers or _cores()
        rows = generate_rows(recipe, args.count, workers=workers, progress=report)
        written = write_puzzles(args.out, rows)
    seconds = time.perf_counter() - start
    print(f"{written:,} puzzles in {seconds:.1f} s ({written / seconds:,.0f}/s): {args.out}")
    if args.seed == SudokuConfig().data_seed:
        warning = "makes the puzzles that models are trained on: choose another for a test set."
        print(f"--seed {args.seed} {warning}", file=sys.stderr)


def rate_sudoku(args: Rate) -> None:
    from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board
    from graph_machine.lab.tasks.sudoku.reader import Rows, write_puzzles
    from graph_machine.lab.tasks.sudoku.solve import band_counts, rate

    how = {"seed": args.seed, "attempts": args.attempts}
    if not os.path.exists(args.target):
        _refuse_file(args.target, is_path="/" in args.target)
        cells = parse_board(args.target)
        print(f"{rate(cells[None], BoxShape.of_cells(len(cells)), **how)[0]:.2f}")
        return
    rows, box = _read(Path(args.target), args.limit)
    start = time.perf_counter()
    with _progress("rated", len(rows.clues)) as report:
        workers = args.workers or _cores()
        ratings = rate(rows.puzzles, box, rows.solutions, workers=workers, progress=report, **how)
    print(f"{len(ratings):,} puzzles rated in {time.perf_counter() - start:.1f} s")
    print_shares("rating", band_counts(ratings))
    print_agreement(ratings, rows.ratings)
    if args.out is not None:
        write_puzzles(args.out, [Rows(rows.puzzles, rows.solutions, rows.clues, ratings)])
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


def draw_sudoku(args: Draw) -> None:
    from rich.console import Console

    from graph_machine.lab.tasks.digits import format_board
    from graph_machine.lab.tasks.sudoku.board import BoxShape, draw_board, parse_board

    shape = BoxShape.parse(args.box) if args.box else None
    if os.path.exists(args.target):
        rows, shape = _read(Path(args.target), args.row + 1)
        puzzle = rows.puzzles[_row(args, len(rows.clues))]
    else:
        _refuse_file(args.target, is_path="/" in args.target)
        puzzle = parse_board(args.target, shape)
        shape = shape or BoxShape.of_cells(len(puzzle))
    filled = _solution(puzzle, shape) if args.solve else None
    console = Console()
    console.print(draw_board(puzzle, shape, filled=filled, marks=not console.is_terminal))
    if filled is not None:
        print(format_board(filled))


def _row(args: Draw, count: int) -> int:
    if args.row >= count:
        raise DataError(f"Row {args.row} of {count} rows: {args.target}")
    return args.row


def _solution(puzzle: "np.ndarray", box: "BoxShape") -> "np.ndarray":
    from graph_machine.lab.tasks.sudoku.board import contradiction
    from graph_machine.lab.tasks.sudoku.solve import solve

    solved = solve(puzzle[None], box)
    if solved.counts[0] == 0:
        raise DataError(contradiction(puzzle, box) or "The puzzle has no solution.")
    if solved.counts[0] > 1:
        print("The puzzle has more than one solution; this is one of them.")
    return solved.solutions[0]


def _refuse_file(text: str, is_path: bool = False) -> None:
    """A missing file should not be reported as a bad board."""
    if is_path or text.endswith(FILES):
        raise DataError(f"There is no such file or store: {text}")


def _read(path: Path, limit: int | None) -> "tuple[Rows, BoxShape]":
    """The first rows of a file or store."""
    from graph_machine.lab.tasks.rows import join_rows
    from graph_machine.lab.tasks.sudoku.reader import RowReader, Rows
    from graph_machine.lab.tasks.sudoku.store import SudokuStore

    if path.is_dir():
        store = SudokuStore.open(path)
        return store.take(slice(limit)), store.box
    reader = RowReader(path)
    parts: list[Rows] = []
    for rows in reader:
        parts.append(rows)
        if limit is not None and sum(len(part.clues) for part in parts) >= limit:
            break
    if not parts or reader.box is None:
        raise DataError(f"The data file has a header but no rows: {path}")
    return join_rows(parts).take(slice(limit)), reader.box


def _cores() -> int:
    """The cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def board_task(name: str, settings: tuple[str, ...] = ()) -> "BoardTask":
    """The task of this name, if its examples are boards that are written to files."""
    from graph_machine.lab.conditions.budgets import with_settings
    from graph_machine.lab.conditions.registry import BASE
    from graph_machine.lab.config import TASK_CONFIGS
    from graph_machine.lab.tasks.base import task_class
    from graph_machine.lab.tasks.boards import BoardTask

    config = with_settings(BASE.replace(task=TASK_CONFIGS[name]()), settings).task
    kind = task_class(config)
    if not issubclass(kind, BoardTask):
        raise ConfigError(
            f"The task {name} has no files of examples; --task takes sudoku, jigsaw, maze."
        )
    return kind(config)


def generate_boards(args: Generate) -> None:
    """Write boards to a .csv file; `args.set` are settings of the task (`task.side=6`)."""
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
    start = time.perf_counter()
    counts = {task.count_field: max(LEAST, args.count), "data_seed": args.seed}
    task = type(task)(task.config.replace(**counts))
    task.write(args.out, task.generate().take(slice(args.count)))
    made = f"{count_of(args.count, task.examples_word)} in {time.perf_counter() - start:.1f} s"
    print(f"{made}: {args.out}")


def info_boards(args: Info) -> None:
    """Counts of a file by the groups in which its task is reported: ratings and clues, or steps."""
    import numpy as np

    if args.verify:
        raise ConfigError(f"--verify is for stores of Sudoku; {args.task} has none.")
    task = board_task(args.task).whole(str(args.path))
    store, word = task.store, task.examples_word
    starts = range(0, len(store), AT_ONCE)
    parts = [task.batch_of(store.take(slice(at, at + AT_ONCE))) for at in starts]
    groups = {
        by.title: counted(np.concatenate([part.groups[by.group] for part in parts]), by)
        for by in task.groupings
    }
    if args.json:
        facts = {"task": args.task, word: len(store), "side": store.side, **groups}
        print(json.dumps(facts | {"identity": task.identity}, indent=2))
        return
    print(f"{len(store):,} {word} of side {store.side}: {args.path}")
    for title, counts in groups.items():
        print_shares(title, counts, word)
    print(f"identity {task.identity}")


def counted(values: "np.ndarray", by: "Grouping") -> dict[str, int]:
    """The number of values in each band, or of each value; unknown ones only if there are some."""
    import numpy as np

    known = values[~np.isnan(values)]
    found = {b.label: int(((known >= b.low) & (known < b.high)).sum()) for b in by.bands}
    if not by.bands:
        numbers, counts = np.unique(known, return_counts=True)
        found = {f"{n:g}": int(c) for n, c in zip(numbers, counts)}
    unknown = len(values) - len(known)
    return found | ({"unknown": unknown} if unknown else {})


def rate_boards(args: Rate) -> None:
    """Rate one puzzle, or those of a file, and compare with the file's own ratings."""
    if args.workers is not None:
        raise ConfigError(f"--workers is for Sudoku; {args.task} is rated in one thread.")
    task, how = board_task(args.task), {"attempts": args.attempts, "seed": args.seed}
    if not os.path.exists(args.target):
        _refuse_file(args.target)
        print(f"{task.rate(task.store_of(args.target), **how)[0]:.2f}")
        return
    store, word = task.read(args.target).take(slice(args.limit)), task.examples_word
    start = time.perf_counter()
    ratings = task.rate(store, **how)
    print(f"{len(ratings):,} {word} rated in {time.perf_counter() - start:.1f} s")
    by = next(by for by in task.groupings if by.group == "rating")
    print_shares(by.title, counted(ratings, by), word)
    print_agreement(ratings, store.ratings)
    if args.out is not None:
        task.write(args.out, replace(store, ratings=ratings))
        print(f"written: {args.out}")


def draw_boards(args: Draw) -> None:
    """Draw a board that is given as text, or is in a row of a file."""
    from rich.console import Console

    from graph_machine.files import read_text

    if args.box is not None:
        raise ConfigError(f"--box is for Sudoku; a board of {args.task} implies its size.")
    task, text = board_task(args.task), args.target
    if os.path.exists(text):
        rows = list(task.examples_in(read_text(text)))
        text = rows[_row(args, len(rows))][1]
    else:
        _refuse_file(text)
    picture, solution, note = task.picture(text, solve=args.solve)
    if note:
        print(note)
    Console(highlight=False).print(picture)
    if solution is not None:
        print(solution)


# What each subcommand calls: for Sudoku, and for other boards.
WORK: dict[type, tuple[Callable[..., None], Callable[..., None]]] = {
    Prepare: (prepare_sudoku, prepare_sudoku),
    Info: (info_sudoku, info_boards),
    Generate: (generate_sudoku, generate_boards),
    Rate: (rate_sudoku, rate_boards),
    Draw: (draw_sudoku, draw_boards),
}
