"""`graph-machine record`: store what happens inside a model."""

from graph_machine.errors import DataError, count_of
from graph_machine.lab.cli._options import RecordOptions
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.opening import open_model
from graph_machine.lab.records.naming import parse_cell
from graph_machine.lab.records.record import check_space
from graph_machine.lab.records.recorder import estimate, record


def main(args: RecordOptions) -> int:
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
        "rounds": args.rounds,
        "task": task,
    }
    size = estimate(subject.model, batch, **choice)
    many = count_of(len(samples), task.examples_word)
    print(f"{subject.name}: {many}, at most {size / 1e6:,.1f} MB")
    check_space(args.out, size)
    if args.dry_run:
        return 0
    made = record(subject.model, batch, box=task.blocks, name=subject.name, data=about, **choice)
    made.save(args.out)
    print(f"{len(made.paths)} tensors, {made.num_bytes / 1e6:,.1f} MB: {args.out}")
    return 0
