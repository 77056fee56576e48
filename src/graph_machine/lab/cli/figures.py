"""`graph-machine figures`: the paper's figures from recordings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from graph_machine.lab.cli._options import CountOrZero, options, parse_one, read

if TYPE_CHECKING:
    from graph_machine.lab.records.record import Record

SAMPLES = 16  # the paper's, and those of `graph-machine record`


@options
class Figures:
    """Draw the paper's figures from recordings alone, as vector PDF and PNG."""

    recordings: tyro.conf.Positional[tuple[str, ...]] = ()
    """Files written by `graph-machine record`: of a GM, of a Transformer, or of both. A model by
    its name or folder is recorded on its first 16 test puzzles."""
    out: Path = Path("figures")
    """Folder for the figures."""
    only: tuple[str, ...] = ()
    """Figures by name; all that the recordings can give without it (see --list)."""
    sample: CountOrZero | None = None
    """Puzzle to show, where a figure shows one."""
    samples: str | None = None
    """Puzzles to show side by side, such as 0-7."""
    source: str | None = None
    """Source cell, such as r2c2, or node, such as n3; by default the paper's cell, adapted to the
    board."""
    sources: tuple[str, ...] = ()
    """Source cells of figures that show several."""
    heads: tuple[str, ...] = ()
    """Heads or edges by shorthand: box=l0r2 row=l3e2 for regions, l3a1 l4r0 l1e2 elsewhere. r: a
    referral head and its new edge; e: an edge as it comes in, after sharpening."""
    all_cells: tuple[str, ...] = ()
    """Contact sheets of every source cell for these heads (l1r2 l0a3 s0l1e2r), or 'all'."""
    rounds: Annotated[str | None, tyro.conf.arg(metavar="INT")] = None
    """Rounds of a recurrent core, for models by name; default: as trained."""
    formats: tuple[Literal["pdf", "png", "svg"], ...] = ("pdf", "png")
    """Files of each figure."""
    list: bool = False
    """List the figures and stop."""


def main(argv: list[str]) -> int:
    args = read(Figures, argv, "figures")
    rounds = parse_one(args.rounds)
    from rich.console import Console

    from graph_machine.errors import ConfigError, DataError
    from graph_machine.lab.analysis.figures import (
        FIGURES,
        applicable,
        check_given,
        draw_figure,
        missing,
    )
    from graph_machine.lab.analysis.figures.board import save, sheet, sheet_names
    from graph_machine.lab.analysis.figures.per_puzzle import filling_gif

    console = Console(soft_wrap=True, highlight=False)
    if args.list:
        for name, figure in FIGURES.items():
            console.print(f"{name:<16} {figure.shows}")
        return 0
    if not args.recordings:
        raise ConfigError("figures: name at least one recording (see 'graph-machine record').")
    records = [_open(name, rounds) for name in args.recordings]
    _check_heads(args, records)
    check_given(args.only, records)
    for name in args.only or (() if args.all_cells else FIGURES):
        if not args.only and (why := missing(name, records)) is not None:
            console.print(f"left out: {name} ({why})", markup=False)
        for file, chosen in applicable(name, records):
            try:
                drawn = draw_figure(name, chosen, **_choices(args, name, chosen[0]))
            except DataError as error:
                if args.only:
                    raise
                console.print(f"left out: {file} ({error})", markup=False)
                continue
            save(drawn, args.out / file, args.formats)
            if name == "rounds":
                filling_gif(chosen[0], args.out / f"{file}.gif", sample=args.sample or 0)
            console.print(f"{args.out / file}: {FIGURES[name].shows}", markup=False)
    for record in records if args.all_cells else []:
        names = sheet_names(record) if args.all_cells == ("all",) else args.all_cells
        for short in names:
            prefix = "" if len(records) == 1 else f"{record.name.replace(' ', '-')}-"
            file = args.out / f"cells-{prefix}{short}"
            save(sheet(record, short, sample=args.sample or 0), file, args.formats)
            console.print(f"{file}: all source cells", markup=False)
    return 0


def _open(name: str, rounds: int | None) -> "Record":
    """A recording from its file, or made now of a model."""
    from graph_machine.lab.opening import HANDMADE, open_model
    from graph_machine.lab.records.record import Record, refuse_rounds
    from graph_machine.lab.records.recorder import record
    from graph_machine.models.checkpoint import find_checkpoint

    if find_checkpoint(name) is None and name.partition(":")[0] != HANDMADE:
        found = Record.load(Path(name))
        refuse_rounds(rounds, name)
        return found
    subject = open_model(name)
    subject.model.check_rounds(rounds)
    batch, about = subject.samples(None, SAMPLES)
    box = subject.known_task.blocks
    task = subject.known_task
    about_it = {"name": subject.name, "data": about, "task": task}
    return record(subject.model, batch, box=box, rounds=rounds, **about_it)


def _check_heads(args: Figures, records: "list[Record]") -> None:
    """A head or edge that no recording has is an error, not a figure that is left out."""
    from graph_machine.errors import ConfigError, GraphMachineError

    sheets = () if args.all_cells == ("all",) else args.all_cells
    named = [("--heads", word) for word in args.heads] + [("--all-cells", word) for word in sheets]
    for option, word in named:
        said = ""
        for record in records:
            try:
                sample, source = record.samples[0], record.sources[0]
                record.find(word.rpartition("=")[2], source, sample=sample)
                break
            except GraphMachineError as error:
                said = str(error)
        else:
            raise ConfigError(f"{option} {word}: {said}")


def _choices(args: Figures, name: str, record) -> dict[str, object]:
    """The arguments that a figure's function takes, from those of the command line."""
    import inspect

    from graph_machine.lab.analysis.figures import FIGURES
    from graph_machine.lab.records.naming import parse_cell, parse_numbers

    taken = inspect.signature(FIGURES[name].draw).parameters
    grid = record.grid or (1, record.nodes)
    pairs = dict(text.split("=", 1) for text in args.heads if "=" in text)
    plain = tuple(text for text in args.heads if "=" not in text)
    wanted: dict[str, object] = {
        "sample": args.sample,
        "samples": None if args.samples is None else parse_numbers(args.samples, "samples"),
        "source": None if args.source is None else parse_cell(args.source, grid),
        "sources": tuple(parse_cell(cell, grid) for cell in args.sources) or None,
        "edges": plain or None,
        # Region figures take heads by region, labour by name, attention by number.
        "heads": pairs or None,
    }
    if name.startswith("labour"):
        wanted["heads"] = plain or None
    elif name.startswith(("attention", "late")):
        wanted["heads"] = None
    return {key: value for key, value in wanted.items() if key in taken}
