"""`graph-machine figures`: the paper's figures from recordings."""

from pathlib import Path

from rich.console import Console

from graph_machine.errors import ConfigError, DataError, GraphMachineError
from graph_machine.files import shipped
from graph_machine.lab.analysis import figures
from graph_machine.lab.analysis.figures import FIGURES
from graph_machine.lab.analysis.figures.board import save_figure, sheet, sheet_names
from graph_machine.lab.analysis.figures.per_puzzle import filling_gif
from graph_machine.lab.cli._options import Figures
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.opening import open_model
from graph_machine.lab.records.naming import parse_cell
from graph_machine.lab.records.record import Record, refuse_rounds
from graph_machine.lab.records.recorder import record

SAMPLES = 16  # the paper's, and those of `graph-machine record`


def main(args: Figures) -> int:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if args.list:
        for name, figure in FIGURES.items():
            console.print(f"{name:<16} {figure.shows}")
        return 0
    if not args.recordings:
        raise ConfigError("figures: name at least one recording (see 'graph-machine record').")
    records = [_open(name, args.rounds) for name in args.recordings]
    _check_heads(args, records)
    figures.check_given(args.only, records)
    for name in args.only or (() if args.all_cells else FIGURES):
        if not args.only and (why := figures.missing(name, records)) is not None:
            console.print(f"left out: {name} ({why})")
        for file, chosen in figures.applicable(name, records):
            try:
                drawn = figures.draw_figure(name, chosen, **_choices(args, chosen[0]))
            except DataError as error:
                if args.only:
                    raise
                console.print(f"left out: {file} ({error})")
                continue
            save_figure(drawn, args.out / file, args.formats)
            if name == "rounds":
                filling_gif(chosen[0], args.out / f"{file}.gif", sample=args.sample or 0)
            console.print(f"{args.out / file}: {FIGURES[name].shows}")
    for made in records if args.all_cells else []:
        names = sheet_names(made) if args.all_cells == ("all",) else args.all_cells
        for short in names:
            prefix = "" if len(records) == 1 else f"{made.name.replace(' ', '-')}-"
            file = args.out / f"cells-{prefix}{short}"
            save_figure(sheet(made, short, sample=args.sample or 0), file, args.formats)
            console.print(f"{file}: all source cells")
    return 0


def _open(name: str, rounds: int | None) -> Record:
    """A recording from its file, or made now of a model."""
    if not (Path(name).is_dir() or name in shipped() or ":" in name):
        found = Record.load(Path(name))
        refuse_rounds(rounds, name)
        return found
    subject = open_model(name)
    subject.model.check_rounds(rounds)
    batch, about = subject.samples(None, SAMPLES)
    task = subject.known_task
    about_it = {"name": subject.name, "data": about, "task": task}
    return record(subject.model, batch, box=task.blocks, rounds=rounds, **about_it)


def _check_heads(args: Figures, records: list[Record]) -> None:
    """A head or edge that no recording has is an error, not a figure that is left out."""
    sheets = () if args.all_cells == ("all",) else args.all_cells
    named = [("--heads", word) for word in args.heads] + [("--all-cells", word) for word in sheets]
    for option, word in named:
        said = ""
        for one in records:
            try:
                one.find(word.rpartition("=")[2], one.sources[0], sample=one.samples[0])
                break
            except GraphMachineError as error:
                said = str(error)
        else:
            raise ConfigError(f"{option} {word}: {said}")


def _choices(args: Figures, made: Record) -> dict[str, object]:
    """The choices of the command line for a recording; None: the default."""
    grid = made.grid or (1, made.nodes)
    return {
        "sample": args.sample,
        "samples": None if args.samples is None else parse_numbers(args.samples, "samples"),
        "source": None if args.source is None else parse_cell(args.source, grid),
        "sources": tuple(parse_cell(cell, grid) for cell in args.sources) or None,
        "heads": args.heads,
    }
