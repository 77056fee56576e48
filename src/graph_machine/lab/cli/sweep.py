"""`graph-machine sweep`: many conditions and seeds, here or on a Ray cluster."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import Bounds, Count, CountOrZero, options, read

if TYPE_CHECKING:
    from graph_machine.lab.sweeps.grid import Job
    from graph_machine.lab.sweeps.progress import Entry, View

DEFAULT = "default"


@options
class Args:
    """Train a grid of conditions and seeds. Finished runs are skipped, interrupted ones resumed."""

    table: tuple[str, ...] = ()
    """every condition of these tables: 1 to 8, C.1 to C.6 of the paper, jigsaw, maze, ..."""
    conditions: str = ""
    """conditions by name, separated by commas; 'graph-machine conditions' lists them"""
    all: bool = False
    """every condition, those beyond the paper too"""
    seeds: str = "0-2"
    """such as 0-9 or 0,3,7"""
    budget: str = "paper"
    """paper: the recipe at full size; cpu: small boards, minutes; smoke: seconds"""
    task: str | None = None
    """what is learned: sudoku, jigsaw, maze, pointers, algorithms, recall, text, or your own
    (--import); default: each condition's own"""
    box: str | None = None
    """box shape of the boards, such as 2x3; default: the budget's own"""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE ...")] = ()
    """change any setting of all runs, such as train.peak_lr=5e-4"""
    steps: Count | None = None
    """the same as --set train.steps=N"""
    grid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE,VALUE ...")] = ()
    """run every combination of these settings too, such as train.peak_lr=1e-3,2e-3"""
    data: str | None = None
    """puzzle file or store; default: generate (and cache) a set"""
    out: Path = Path("runs")
    """folder of the run folders"""
    workers: Count = 1
    """runs at a time on this machine, each pinned to its share of cores or accelerators"""
    ray: Annotated[str | None, tyro.conf.arg(metavar="[ADDRESS]")] = None
    """run on the Ray cluster at ADDRESS (local: a new one here, for this machine only); without
    ADDRESS, the one of RAY_ADDRESS or of this machine"""
    cpus: Count = 1
    """with --ray: CPUs of each run"""
    gpus: Annotated[float, Bounds(0)] = 0.0
    """with --ray: accelerators of each run; a share such as 0.25 lets four runs use one"""
    retries: CountOrZero = 3
    """with --ray: how often a run is restarted after its worker or machine was lost"""
    dry_run: bool = False
    """list the runs and their status (interrupted ones would continue), and stop"""


def with_ray_value(argv: list[str]) -> list[str]:
    """`--ray` may stand alone: give it the word that leaves the choice of a cluster to Ray."""
    result = []
    for index, word in enumerate(argv):
        result.append(word)
        following = argv[index + 1] if index + 1 < len(argv) else "--"
        if word == "--ray" and following.startswith("--"):
            result.append(DEFAULT)
    return result


def jobs_of(args: Args) -> "list[Job]":
    from graph_machine.lab.sweeps.grid import choose_conditions, make_grid, parse_seeds

    steps = () if args.steps is None else (f"train.steps={args.steps}",)
    names = [name.strip() for name in args.conditions.split(",") if name.strip()]
    return make_grid(
        choose_conditions(args.table, names, args.all),
        parse_seeds(args.seeds),
        budget=args.budget,
        size=args.box,
        task=args.task,
        settings=(*args.settings, *steps),
        axes=args.grid,
        data=args.data,
        out=args.out,
    )


def run(args: Args, entries: "list[Entry]", view: "View") -> None:
    from graph_machine.lab.sweeps.runner import LocalRunner, this_machine

    if args.ray is None:
        with view:
            LocalRunner(entries, this_machine(args.workers), view).run()
        return
    from graph_machine.lab.sweeps.ray_runner import RayRunner, connect, load_ray

    if args.workers != 1:
        raise ConfigError("--workers is for this machine; with --ray say --cpus and --gpus.")
    runner = RayRunner(entries, view, cpus=args.cpus, gpus=args.gpus, retries=args.retries)
    address = None if args.ray == DEFAULT else args.ray
    ray = load_ray(address)
    connect(ray, address)
    try:
        with view:
            runner.run(ray)
    finally:
        ray.shutdown()


def main(argv: list[str]) -> int:
    args = read(Args, with_ray_value(argv), "sweep")
    from graph_machine.lab.sweeps.progress import EXPLAINED, make_view, summary
    from graph_machine.lab.sweeps.runner import close_finished, look, prepare

    entries = prepare(jobs_of(args))
    if args.dry_run:
        look(entries)
        for entry in entries:
            state = EXPLAINED.get(entry.status, entry.status)
            if entry.status == "interrupted":
                state += f" at step {entry.step:,} of {entry.steps:,}"
            print(f"{entry.job.name}: {state}: {entry.message or entry.job.out}")
        print(summary(entries))
        return 0
    close_finished(entries)
    # A batch system ends jobs with SIGTERM: let the runs save themselves then, too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(args, entries, make_view())
    except KeyboardInterrupt:
        print(f"Stopped. {summary(entries)}. The same command continues.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    unfinished = [entry for entry in entries if entry.status not in ("finished", "skipped")]
    for entry in unfinished:
        status = EXPLAINED.get(entry.status, entry.status)
        why = f": {entry.message}" if entry.message else f" at step {entry.step:,}"
        print(f"{entry.job.name} {status}{why}", file=sys.stderr)
    print(f"{summary(entries)}. 'graph-machine report {args.out}' shows them.")
    return 1 if unfinished else 0
