"""Generated puzzles, made once per machine and shared by every run that asks for the same ones."""

import os
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from graph_machine.config import SudokuConfig
from graph_machine.files import cache_folder
from graph_machine.locks import file_lock
from graph_machine.tasks.sudoku.board import BoxShape
from graph_machine.tasks.sudoku.store import META, SudokuStore, write_store


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
    # Here, because it needs numba, which a set that is there already does not.
    from graph_machine.tasks.sudoku.generate import Recipe, generate_rows

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
