"""`graph-machine record`: store what happens inside a model."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from graph_machine.lab.cli._options import options, parse_one, read


@options
class RecordArgs:
    """Run a model on a few puzzles and store what it computes inside, by name."""

    checkpoint: tyro.conf.Positional[str]
    """Checkpoint or run folder, shipped model, or handmade:3x3."""
    out: Path = Path("record.rec.safetensors")
    """File to write."""
    data: str | None = None
    """Puzzle file or store; without it, the data that the model's own task generates."""
    split: Literal["test", "eval", "train"] = "test"
    """Part of the data, as the model's own seed draws it."""
    samples: str = "0-15"
    """Puzzles of the split, such as 0-15 or 0,3,7."""
    names: tuple[str, ...] = ("*",)
    """Names or patterns: n2_weights 'address_*' 'layers.3.*'."""
    layers: str | None = None
    """Layers, such as 0-3; default: all."""
    sources: tuple[str, ...] = ()
    """Source cells, such as r2c2 r2c5 (rows and columns count from 1), or nodes of a graph or
    sequence, such as n3 (from 0); default: all."""
    rounds: Annotated[str | None, tyro.conf.arg(metavar="INT")] = None
    """Rounds of a recurrent core; by default as trained."""
    full: bool = False
    """Keep every number in float32, even where half precision is accurate enough."""
    dry_run: bool = False
    """Print the size and write nothing."""


def main(argv: list[str]) -> int:
    args = read(RecordArgs, argv, "record")
    rounds = parse_one(args.rounds)
    from rich.console import Console

    from graph_machine.errors import DataError, count_of
    from graph_machine.lab.opening import open_model
    from graph_machine.lab.records.naming import parse_cell, parse_numbers
    from graph_machine.lab.records.record import check_space
    from graph_machine.lab.records.recorder import estimate, record

    console = Console()
    subject = open_model(args.checkpoint).for_data(args.data)
    subject.check_layers()
    samples = parse_numbers(args.samples, "samples")
    batch, about = subject.samples(args.data, max(samples) + 1, split=args.split)
    if max(samples) >= len(batch):
        raise DataError(
            f"Sample {max(samples)} is wanted, but the {args.split} split has {len(batch)} "
            f"{subject.known_task.examples_word}; choose --samples from 0-{len(batch) - 1}."
        )
    task = subject.known_task
    grid = subject.model.spec.grid or (1, batch.num_nodes)
    choice = {
        "names": args.names,
        "layers": None if args.layers is None else parse_numbers(args.layers, "layers"),
        "sources": tuple(parse_cell(cell, grid) for cell in args.sources) or None,
        "samples": samples,
        "half": not args.full,
        "rounds": rounds,
        "task": task,
    }
    size = estimate(subject.model, batch, **choice)
    many = count_of(len(samples), task.examples_word)
    console.print(f"{subject.name}: {many}, at most {size / 1e6:,.1f} MB", highlight=False)
    check_space(args.out, size)
    if args.dry_run:
        return 0
    made = record(subject.model, batch, box=task.blocks, name=subject.name, data=about, **choice)
    made.save(args.out)
    console.print(
        f"{len(made.paths)} tensors, {made.num_bytes / 1e6:,.1f} MB: {args.out}", highlight=False
    )
    return 0
