"""`graph-machine data generate | draw --task NAME`: boards of other tasks than Sudoku."""

import os
import time
from pathlib import Path

from rich.console import Console

from graph_machine.cli.data import Draw, Generate
from graph_machine.conditions.budgets import with_settings
from graph_machine.conditions.registry import BASE
from graph_machine.config import TASK_CONFIGS, TaskConfig
from graph_machine.errors import ConfigError, DataError
from graph_machine.files import refuse_to_replace
from graph_machine.tasks.base import task_class
from graph_machine.tasks.boards import BoardTask

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
    refuse_to_replace(args.out, args.force)
    config = with_settings(BASE.replace(task=TASK_CONFIGS[args.task]()), args.set).task
    kind = board_task(config)
    if args.out.suffix != ".csv":
        raise ConfigError(f"--out should end in .csv, got '{args.out.name}'.")
    start = time.perf_counter()
    many = {kind.count_field: max(LEAST, args.count), "data_seed": args.seed}
    task = kind(config.replace(**many))
    task.write(args.out, task.generate().take(slice(args.count)))
    seconds = time.perf_counter() - start
    print(f"{args.count:,} {task.examples_word} in {seconds:.1f} s: {args.out}")


def draw(args: Draw) -> None:
    """Draw a board that is given as text, or is in a row of a file."""
    if args.box is not None:
        raise ConfigError(f"--box is for Sudoku; a board of {args.task} tells its own size.")
    config = TASK_CONFIGS[args.task]()
    kind = board_task(config)
    text = args.target
    if os.path.exists(text):
        rows = list(kind(config).examples_in(Path(text).read_text(encoding="utf-8")))
        if args.row >= len(rows):
            raise DataError(f"Row {args.row} of {len(rows)} rows: {text}")
        text = rows[args.row]
    elif text.endswith((".csv", ".gz", ".zip", ".store")):
        raise DataError(f"There is no such file or store: {text}")
    picture, solution = kind.picture(text, solve=args.solve)
    Console(highlight=False).print(picture)
    if solution is not None:
        print(solution)
