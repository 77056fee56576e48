"""What edges that stay cost: layers with and without them, forward and backward.

    python benchmarks/given_edges.py [--nodes 81] [--batch 32] [--rounds 9]

CPU time on one thread, medians of interleaved rounds; ratios to layers whose input edges fill
their slots. Given edges are the only ones of the first layer: referral makes slots for the others.
"""

import argparse
import statistics
import time

import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.graphs import InputGraph
from graph_machine.machine import tune_cpu
from graph_machine.models import GraphMachine

LAYERS = 3
CASES: dict[str, dict[str, object]] = {
    "first": {},
    "first, empty edge": {"empty_edge": True},
    "8 given edges": {"given_edges": "always"},
    "8 given edges, empty edge": {"given_edges": "always", "empty_edge": True},
    "the same, edge values": {"given_edges": "always", "empty_edge": True, "edge_values": True},
}


def medians(referral: str, nodes: int, batch: int, rounds: int) -> dict[str, float]:
    """Case -> seconds."""
    spec = InputSpec(num_tokens=5, num_outputs=3, graph="given", num_edge_categories=4)
    base = ModelConfig(num_layers=LAYERS, qk_norm=True).replace(referral=referral)
    models = {name: GraphMachine(base.replace(**case), spec) for name, case in CASES.items()}
    tokens = torch.randint(5, (batch, nodes))
    targets = torch.randint(nodes, (batch, nodes, 8))
    graph = InputGraph(targets, torch.zeros_like(targets), 4)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = time.process_time()
            model(tokens, graph).logits.sum().backward()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=81)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tune_cpu()
    print(f"n = {args.nodes}, b = {args.batch}, k = 8, {LAYERS} layers, forward and backward")
    for referral in ("preaggregated", "joint"):
        found = medians(referral, args.nodes, args.batch, args.rounds)
        for name, seconds in found.items():
            print(f"{referral:14} {name:26} {1e3 * seconds:7.1f} ms {seconds / found['first']:.2f}")


if __name__ == "__main__":
    main()
