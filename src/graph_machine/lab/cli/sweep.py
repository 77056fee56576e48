"""`graph-machine sweep`: many conditions and seeds, here or on a Ray cluster."""

import signal
import sys

from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import RAY, Sweep
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.sweeps import runner
from graph_machine.lab.sweeps.grid import Job, choose_conditions, make_grid
from graph_machine.lab.sweeps.progress import EXPLAINED, Entry, View, make_view, summary


def jobs_of(args: Sweep) -> list[Job]:
    steps = () if args.steps is None else (f"train.steps={args.steps}",)
    names = [name.strip() for name in args.conditions.split(",") if name.strip()]
    return make_grid(
        choose_conditions(args.table, names, args.all),
        parse_numbers(args.seeds, "--seeds"),
        budget=args.budget,
        size=args.box,
        task=args.task,
        settings=(*args.set, *steps),
        axes=args.grid,
        data=args.data,
        out=args.out,
    )


def carry_out(args: Sweep, entries: list[Entry], view: View) -> None:
    if args.ray is None:
        with view:
            runner.LocalRunner(entries, runner.this_machine(args.workers), view).run()
        return
    from graph_machine.lab.sweeps.ray_runner import RayRunner, join_cluster, load_ray

    if args.workers != 1:
        raise ConfigError("--workers is for this machine; with --ray say --cpus and --gpus.")
    on_ray = RayRunner(entries, view, cpus=args.cpus, gpus=args.gpus, retries=args.retries)
    address = None if args.ray == RAY else args.ray
    ray = load_ray(address)
    join_cluster(ray, address)
    try:
        with view:
            on_ray.run(ray)
    finally:
        ray.shutdown()


def main(args: Sweep) -> int:
    entries = runner.prepare(jobs_of(args))
    if args.dry_run:
        runner.look(entries)
        for entry in entries:
            state = EXPLAINED.get(entry.status, entry.status)
            if entry.status == "interrupted":
                state += f" at step {entry.step:,} of {entry.steps:,}"
            print(f"{entry.job.name}: {state}: {entry.message or entry.job.out}")
        print(summary(entries))
        return 0
    runner.close_finished(entries)
    # A batch system ends jobs with SIGTERM: let the runs save themselves then, too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        carry_out(args, entries, make_view())
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
