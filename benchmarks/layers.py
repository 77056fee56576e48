"""How many Transformer layers a Graph Machine layer costs, forward and backward.

    python benchmarks/layers.py [--sizes 16x64,36x64] [--rounds 21] [--only pre] [--threads 1]

The yardstick is torch's own `nn.TransformerEncoderLayer` of the same width at the same number of
nodes and graphs (n x b). CPU time, medians of interleaved rounds in one process, float32.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from graph_machine.machine import tune_cpu
from graph_machine.nn import EdgeSublayer, Layer, NodeSublayer
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Context, DenseAddresses
from graph_machine.state import GraphState

D_NODE, SLOTS = 64, 8
SIZES = "16x64,36x64,64x32,81x32,128x16"


def contestants(n: int, b: int) -> dict[str, Callable[[], Tensor]]:
    """Name -> a forward pass; its last value is what the backward pass starts from."""
    nodes = torch.randn(b, n, D_NODE, requires_grad=True)
    edges = torch.randn(b, n, SLOTS, 8, requires_grad=True)
    addresses = (2 * torch.randn(b, n, SLOTS, n)).softmax(dim=-1).requires_grad_()
    state = GraphState(nodes, edges, DenseAddresses(addresses))
    yardstick = nn.TransformerEncoderLayer(
        *(D_NODE, 8, 4 * D_NODE), dropout=0.0, norm_first=True, batch_first=True
    )
    sublayer = NodeSublayer(d_node=D_NODE)
    fixed = sublayer.fix_edges(state)
    assert fixed is not None
    prepared = fixed._replace(
        features=fixed.features.detach(),
        addresses=DenseAddresses(fixed.addresses.to_dense().detach()),
    )

    def layer(kind: ReferralKind) -> Callable[[], Tensor]:
        made = Layer([EdgeSublayer(d_node=D_NODE, kind=kind)], [NodeSublayer(d_node=D_NODE)])
        return lambda: made(state, Context()).state.node_features

    return {
        "torch": lambda: yardstick(nodes),
        "node sublayer, fixed edges": lambda: sublayer(state, Context(), prepared)[0].node_features,
        "pre-aggregated": layer("preaggregated"),
        "joint": layer("joint"),
    }


def seconds(forward: Callable[[], Tensor]) -> float:
    start = time.process_time()
    forward().sum().backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default=SIZES, help="pairs of nodes and graphs")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tune_cpu()
    gc.disable()
    for size in args.sizes.split(","):
        n, b = map(int, size.split("x"))
        steps = {
            name: step
            for name, step in contestants(n, b).items()
            if name == "torch" or args.only in name
        }
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(args.rounds):
            for name, step in steps.items():
                times[name].append(seconds(step))
        found = {name: statistics.median(each[1:]) for name, each in times.items()}
        for name, each in found.items():
            print(f"n={n:4} b={b:3} {name:28} {1e3 * each:7.1f} ms {each / found['torch']:5.2f}")


if __name__ == "__main__":
    main()
