"""How much faster two threads are than one: whole training steps, and predictions in batches.

    python benchmarks/threads.py [--rounds 9] [--only pre]

Wall time; one and two threads take turns in one process. `two processes` of one thread each have
half of the work each, at the same time: what they gain is what threads could gain at most. The last
column says how many cores other processes kept busy meanwhile: near 0 the machine was quiet.
OMP_WAIT_POLICY=passive, which `graph-machine` sets, lets threads sleep while they wait; otherwise
they spin.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing

from graph_machine import GraphMachine
from graph_machine.lab.conditions import config_for
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.training.cost import blank_task
from graph_machine.lab.training.trainer import Trainer
from graph_machine.machine import tune_cpu

Work = Callable[[], object]


def training_step(layers: int, referral: str, parts: int = 1) -> Work:
    """A step of `graph-machine train` on 64 boards of 81 cells, or on a part of them."""
    model = [f"model.num_layers={layers}", f"model.referral={referral}"]
    config = config_for("gm", "paper", settings=[*model, f"train.batch_size={64 // parts}"])
    trainer = Trainer(config, blank_task(task_of(config.task)), seed=0, device=torch.device("cpu"))
    return lambda: trainer.step(1)


def predict(parts: int = 1) -> Work:
    """Answers to 256 boards, or to a part of them."""
    model, boards = GraphMachine.from_pretrained("gm-9x9"), torch.randint(10, (256 // parts, 81))
    return lambda: model.predict(boards)


CASES: dict[str, Callable[..., Work]] = {
    "step of one layer, joint": partial(training_step, 1, "joint"),
    "step of one layer, pre-aggregated": partial(training_step, 1, "preaggregated"),
    "step of four layers, pre-aggregated": partial(training_step, 4, "preaggregated"),
    "predict 256 boards, gm-9x9": predict,
}


def busy_seconds() -> float:
    """Of all cores by other processes, since the machine was started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split()[1:9]
    ticks = sum(map(int, (user, nice, system, *interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def seconds(work: Work, threads: int) -> float:
    torch.set_num_threads(threads)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def half(name: str, rounds: int, start: Any, found: Any) -> None:
    """One of two processes: seconds of half of the work while the other has its own."""
    tune_cpu()
    work = CASES[name](parts=2)
    seconds(work, 1)  # warms up
    for _ in range(rounds):
        start.wait()
        found.put(seconds(work, 1))


def two_processes(name: str, rounds: int) -> float:
    context = multiprocessing.get_context("spawn")
    start, found = context.Barrier(2), context.Queue()
    both = [context.Process(target=half, args=(name, rounds, start, found)) for _ in range(2)]
    for process in both:
        process.start()
    taken = [found.get() for _ in range(2 * rounds)]
    for process in both:
        process.join()
    return statistics.median(taken)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--only", default="", help="part of a name")
    args = options.parse_args()
    tune_cpu()
    print("| | one thread, ms | two threads, ms | ratio | two processes | other jobs, cores |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    cases = {name: make for name, make in CASES.items() if args.only in name}
    halves = {name: two_processes(name, args.rounds) for name in cases}  # no thread spins yet
    for name, make in cases.items():
        work = make()
        for threads in (1, 2):
            seconds(work, threads)  # warms up
        start, before = time.perf_counter(), busy_seconds()
        rounds = [(seconds(work, 1), seconds(work, 2)) for _ in range(args.rounds)]
        others = (busy_seconds() - before) / (time.perf_counter() - start)
        one, two = (1e3 * statistics.median(taken) for taken in zip(*rounds))
        share = f"{one / two:.2f} | {one / 1e3 / halves[name]:.2f} | {max(0.0, others):.1f}"
        print(f"| {name} | {one:,.0f} | {two:,.0f} | {share} |", flush=True)


if __name__ == "__main__":
    main()
