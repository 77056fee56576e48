"""What edge states cost: an Edge Transformer (n x n states) beside a GM (n x k), by nodes.

    python benchmarks/edge_states.py [--sizes 16 64 128 256] [--batch 1]    # one layer of each
    python benchmarks/edge_states.py --table clrs                           # whole models

CPU time on one thread (median) and peak memory, forward and backward. Every case runs in a process
of its own, whose memory before the model is subtracted.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from multiprocessing.connection import Connection

import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.graphs import InputGraph
from graph_machine.lab.conditions import TABLES, config_for
from graph_machine.machine import tune_cpu
from graph_machine.models import GraphMachine

BASE = ModelConfig(d_node=32, num_layers=1, qk_norm=True, given_edges="always")
GM = BASE.replace(empty_edge=True, edge_values=True)
CASES = {
    "Edge Transformer": BASE.replace(
        body="edge-transformer", attention_experts="node", num_edge_sublayers=0
    ),
    "GM, joint referral": GM,
    "GM, pre-aggregated referral": GM.replace(referral="preaggregated"),
}
DEGREE, ROUNDS = 8, 5


def peak() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(config: ModelConfig, nodes: int, batch: int, answer: Connection) -> None:
    """Send (seconds, MB) of one step without the optimiser."""
    torch.set_num_threads(1)
    tune_cpu()
    spec = InputSpec(num_tokens=5, num_outputs=3, graph="given", num_edge_categories=4)
    tokens = torch.randint(5, (batch, nodes))
    targets = torch.randint(nodes, (batch, nodes, DEGREE))
    graph = InputGraph(targets, torch.zeros_like(targets), 4)
    model, times = GraphMachine(config, spec), []
    few = InputGraph(torch.zeros(batch, 2, DEGREE, dtype=torch.long), targets[:, :2] * 0, 4)
    model(tokens[:, :2], few).logits.sum().backward()  # what torch loads on first use
    before = peak()
    for _ in range(ROUNDS):
        start = time.process_time()
        model(tokens, graph).logits.sum().backward()
        times.append(time.process_time() - start)
    answer.send((statistics.median(times), peak() - before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 128, 256])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--skip", nargs="+", default=[], help="cases to leave out")
    parser.add_argument("--table", help="models of this table, `cpu` budget, as they are tested")
    args = parser.parse_args()
    cases = CASES
    if args.table:
        names = [row.condition for row in TABLES[args.table].rows]
        cases = {name: config_for(name, "cpu").model for name in names}
    start = multiprocessing.get_context("spawn")
    print(f"b = {args.batch}, d_n = {BASE.d_node}, h = 8, k = 8, {DEGREE} input edges per node")
    for nodes in args.sizes:
        for name, config in ((n, c) for n, c in cases.items() if n not in args.skip):
            ours, theirs = start.Pipe()
            child = start.Process(target=measure, args=(config, nodes, args.batch, theirs))
            child.start()
            seconds, memory = ours.recv()
            child.join()
            print(f"n = {nodes:3}  {name:30} {1e3 * seconds:8.1f} ms {memory:8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
