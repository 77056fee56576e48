"""`graph-machine data`: prepare, inspect, generate, rate and draw Sudoku data."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tyro

from graph_machine.cli._options import STYLE, Count, CountOrZero, Seed, check, options
from graph_machine.errors import ConfigError

Positional = tyro.conf.Positional
SUDOKU = "sudoku"
# Not the seed of generated training data (0), so that a new file is not what models have seen.
NEW_SEED = 1


@options
class Prepare:
    """Check a puzzle file and pack it into a memory-mapped store."""

    file: Positional[Path]
    """.csv, .csv.gz or .zip; docs/data.md lists the columns that are read"""
    out: Path | None = None
    """the store's folder; default: FILE.store beside the file"""
    box: str | None = None
    """rows x columns of a box, for example 3x3; default: as the solutions tell"""
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
    """Make puzzles with exactly one solution, minimal unless extra clues are asked for."""

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
    """keep only puzzles with that many clues, for example 23-26"""
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
    """replace a file that is there already"""


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
    """replace a file that is there already"""


@options
class Draw:
    """Draw a board."""

    target: Positional[str]
    """a puzzle as text (81 symbols for 3x3), or a file or store to take --row from"""
    box: str | None = None
    """rows x columns of a box; default: the usual one for that many cells"""
    row: CountOrZero = 0
    """which puzzle of a file or store, counted from 0"""
    solve: bool = False
    """fill in the solution"""
    task: str = SUDOKU
    """sudoku; jigsaw, whose puzzles are PUZZLE/REGIONS; or maze"""


COMMANDS: dict[str, Callable[..., Any]] = {
    "prepare": Prepare,
    "info": Info,
    "generate": Generate,
    "rate": Rate,
    "draw": Draw,
}


def main(argv: list[str]) -> int:
    args = tyro.extras.subcommand_cli_from_dict(
        COMMANDS, args=argv, prog="graph-machine data", description=__doc__, config=STYLE
    )
    check(args)
    task = getattr(args, "task", SUDOKU)
    # Only what is asked for is imported: boards of other tasks need torch.
    room = importlib.import_module(f"graph_machine.cli.{'_data' if task == SUDOKU else '_boards'}")
    if task == SUDOKU and getattr(args, "set", ()):
        raise ConfigError("--set is for --task jigsaw and maze; Sudoku has --box and --clues.")
    getattr(room, type(args).__name__.lower())(args)
    return 0
