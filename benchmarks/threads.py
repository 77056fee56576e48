"""How much faster two threads are than one: a layer, a training step, predictions in batches.

    python benchmarks/threads.py [--rounds 9]

Wall time, so the machine has to be quiet; one and two threads take turns in one process.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from graph_machine import GraphMachine
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.machine import tune_cpu

SPEC = InputSpec(
    num_tokens=10, num_outputs=9, num_nodes=81, num_edge_categories=6, graph="grid", grid=(9, 9)
)


def training_step(layers: int, referral: str) -> Callable[[], object]:
    """Forward, backward, clipping and Adam, on 64 boards."""
    model = GraphMachine(ModelConfig().replace(num_layers=layers, referral=referral), SPEC)
    optimizer = torch.optim.Adam(model.parameters())
    tokens = torch.randint(10, (64, 81))

    def step() -> None:
        optimizer.zero_grad()
        model(tokens, entropies=True).logits.square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    tune_cpu()
    model, boards = GraphMachine.from_pretrained("gm-9x9"), torch.randint(10, (256, 81))
    cases: dict[str, Callable[[], object]] = {
        "step of one layer, joint": training_step(1, "joint"),
        "step of one layer, pre-aggregated": training_step(1, "preaggregated"),
        "step of four layers, pre-aggregated": training_step(4, "preaggregated"),
        "predict 256 boards, gm-9x9": lambda: model.predict(boards),
    }
    print("| | one thread, ms | two threads, ms | ratio |\n| --- | ---: | ---: | ---: |")
    for name, work in cases.items():
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds + 1):
            for threads, taken in times.items():
                torch.set_num_threads(threads)
                start = time.perf_counter()
                work()
                taken.append(time.perf_counter() - start)
        one, two = (statistics.median(taken[1:]) for taken in times.values())  # the first warms up
        print(f"| {name} | {1e3 * one:,.0f} | {1e3 * two:,.0f} | {one / two:.2f} |", flush=True)


if __name__ == "__main__":
    main()
