"""How much faster two threads are than one: whole training steps, and predictions in batches.

    python benchmarks/threads.py [--rounds 9] [--only pre]

Wall time; one and two threads take turns in one process. The last column says how many cores other
processes kept busy meanwhile: near 0 the machine was quiet. OMP_WAIT_POLICY=passive, which
`graph-machine` sets, lets threads sleep while they wait; otherwise they spin.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from graph_machine import GraphMachine
from graph_machine.lab.conditions import config_for
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.training.cost import blank_task
from graph_machine.lab.training.trainer import Trainer
from graph_machine.machine import tune_cpu


def training_step(layers: int, referral: str) -> Callable[[], object]:
    """A step of `graph-machine train` on 64 boards of 81 cells."""
    model = [f"model.num_layers={layers}", f"model.referral={referral}"]
    config = config_for("gm", "paper", settings=[*model, "train.batch_size=64"])
    trainer = Trainer(config, blank_task(task_of(config.task)), seed=0, device=torch.device("cpu"))
    return lambda: trainer.step(1)


def busy_seconds() -> float:
    """Of all cores by other processes, since the machine was started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split()[1:9]
    ticks = sum(map(int, (user, nice, system, *interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def seconds(work: Callable[[], object], threads: int) -> float:
    torch.set_num_threads(threads)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--only", default="", help="part of a name")
    args = options.parse_args()
    tune_cpu()
    boards = torch.randint(10, (256, 81))

    def predict() -> Callable[[], object]:
        model = GraphMachine.from_pretrained("gm-9x9")
        return lambda: model.predict(boards)

    cases: dict[str, Callable[[], Callable[[], object]]] = {
        "step of one layer, joint": lambda: training_step(1, "joint"),
        "step of one layer, pre-aggregated": lambda: training_step(1, "preaggregated"),
        "step of four layers, pre-aggregated": lambda: training_step(4, "preaggregated"),
        "predict 256 boards, gm-9x9": predict,
    }
    print("| | one thread, ms | two threads, ms | ratio | other jobs, cores |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, make in cases.items():
        if args.only not in name:
            continue
        work = make()
        for threads in (1, 2):
            seconds(work, threads)  # warms up
        start, before = time.perf_counter(), busy_seconds()
        rounds = [(seconds(work, 1), seconds(work, 2)) for _ in range(args.rounds)]
        others = (busy_seconds() - before) / (time.perf_counter() - start)
        one, two = (1e3 * statistics.median(taken) for taken in zip(*rounds))
        share = f"{one / two:.2f} | {max(0.0, others):.1f}"
        print(f"| {name} | {one:,.0f} | {two:,.0f} | {share} |", flush=True)


if __name__ == "__main__":
    main()
