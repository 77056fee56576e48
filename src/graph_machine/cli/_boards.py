"""`graph-machine data COMMAND --task NAME`: boards of other tasks than Sudoku."""

import json
import os
import time
from dataclasses import replace

import numpy as np
from rich.console import Console

from graph_machine.cli._data import print_agreement, print_shares
from graph_machine.cli.data import Draw, Generate, Info, Rate
from graph_machine.conditions.budgets import with_settings
from graph_machine.conditions.registry import BASE
from graph_machine.config import TASK_CONFIGS, TaskConfig
from graph_machine.errors import ConfigError, DataError, count_of
from graph_machine.files import read_text, refuse_to_replace
from graph_machine.tasks.base import task_class
from graph_machine.tasks.boards import BoardTask
from graph_machine.tasks.scores import Grouping

PART = 4096  # boards that are looked at together
LEAST = 20  # boards that a config takes; fewer are cut from so many


def board_task(config: TaskConfig) -> type[BoardTask]:
    """The task's class, if its examples are boards that are written to files."""
    found = task_class(config)
    if not issubclass(found, BoardTask):
        raise ConfigError(
            f"The task {config.name} has no files of examples; --task takes sudoku, jigsaw, maze."
        )
    return found


def generate(args: Generate) -> None:
    """Write boards to a .csv file; `args.set` are settings of the task (`task.side=6`)."""
    for name in ("box", "clues", "max_clues_extra", "workers", "rate"):
        if getattr(args, name) != getattr(Generate, name):
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} is for Sudoku; {args.task} has --set task.NAME=...")
    config = with_settings(BASE.replace(task=TASK_CONFIGS[args.task]()), args.set).task
    kind = board_task(config)
    for setting in args.set:
        key = setting.partition("=")[0]
        if not key.startswith("task."):
            raise ConfigError(f"--set takes settings of the task (task.NAME=...), got '{key}'.")
        if key in ("task.data_seed", f"task.{kind.count_field}"):
            option = "--seed" if key == "task.data_seed" else "--count"
            raise ConfigError(f"{key} is given by {option} here; leave it out of --set.")
    refuse_to_replace(args.out, args.force)
    if args.out.suffix != ".csv":
        raise ConfigError(f"--out should end in .csv, got '{args.out.name}'.")
    start = time.perf_counter()
    many = {kind.count_field: max(LEAST, args.count), "data_seed": args.seed}
    task = kind(config.replace(**many))
    task.write(args.out, task.generate().take(slice(args.count)))
    seconds = time.perf_counter() - start
    made = count_of(args.count, task.examples_word)
    print(f"{made} in {seconds:.1f} s: {args.out}")


def info(args: Info) -> None:
    """Counts of a file by what its task is reported by: ratings and clues, or steps."""
    if args.verify:
        raise ConfigError(f"--verify is for stores of Sudoku; {args.task} has none.")
    config = TASK_CONFIGS[args.task]()
    task = board_task(config)(config).whole(str(args.path))
    store = task.store
    parts = [task.batch_of(store.take(slice(at, at + PART))) for at in range(0, len(store), PART)]
    groups = {
        by.title: counted(np.concatenate([part.groups[by.group] for part in parts]), by)
        for by in task.groupings
    }
    word = task.examples_word
    if args.json:
        facts = {"task": args.task, word: len(store), "side": store.side, **groups}
        print(json.dumps(facts | {"identity": task.identity}, indent=2))
        return
    print(f"{len(store):,} {word} of side {store.side}: {args.path}")
    for title, counts in groups.items():
        print_shares(title, counts, word)
    print(f"identity {task.identity}")


def counted(values: np.ndarray, by: Grouping) -> dict[str, int]:
    """How many values each band has, or each value; unknown ones only if there are some."""
    known = values[~np.isnan(values)]
    found = {b.label: int(((known >= b.low) & (known < b.high)).sum()) for b in by.bands}
    if not by.bands:
        numbers, counts = np.unique(known, return_counts=True)
        found = {f"{n:g}": int(c) for n, c in zip(numbers, counts)}
    unknown = len(values) - len(known)
    return found | ({"unknown": unknown} if unknown else {})


def rate(args: Rate) -> None:
    """Rate one puzzle, or those of a file, and compare with the file's own ratings."""
    if args.workers is not None:
        raise ConfigError(f"--workers is for Sudoku; {args.task} is rated in one thread.")
    config = TASK_CONFIGS[args.task]()
    task, how = board_task(config)(config), {"attempts": args.attempts, "seed": args.seed}
    if not os.path.exists(args.target):
        if args.target.endswith((".csv", ".gz", ".zip", ".store")):
            raise DataError(f"There is no such file or store: {args.target}")
        print(f"{task.rate(task.store_of(args.target), **how)[0]:.2f}")
        return
    if args.out is not None:
        refuse_to_replace(args.out, args.force)
    store = task.read(args.target).take(slice(args.limit))
    start = time.perf_counter()
    ratings = task.rate(store, **how)
    word = task.examples_word
    print(f"{len(ratings):,} {word} rated in {time.perf_counter() - start:.1f} s")
    by = next(by for by in task.groupings if by.group == "rating")
    print_shares(by.title, counted(ratings, by), word)
    print_agreement(ratings, store.ratings)
    if args.out is not None:
        task.write(args.out, replace(store, ratings=ratings))
        print(f"written: {args.out}")


def draw(args: Draw) -> None:
    """Draw a board that is given as text, or is in a row of a file."""
    if args.box is not None:
        raise ConfigError(f"--box is for Sudoku; a board of {args.task} tells its own size.")
    config = TASK_CONFIGS[args.task]()
    kind = board_task(config)
    text = args.target
    if os.path.exists(text):
        rows = list(kind(config).examples_in(read_text(text)))
        if args.row >= len(rows):
            raise DataError(f"Row {args.row} of {len(rows)} rows: {text}")
        text = rows[args.row][1]
    elif text.endswith((".csv", ".gz", ".zip", ".store")):
        raise DataError(f"There is no such file or store: {text}")
    picture, solution, note = kind.picture(text, solve=args.solve)
    if note:
        print(note)
    Console(highlight=False).print(picture)
    if solution is not None:
        print(solution)
