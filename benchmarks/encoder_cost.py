"""What a GraphEncoder costs beside GPS layers of PyG: forward and backward over 32 graphs.

    python benchmarks/encoder_cost.py [--sizes 30 100] [--repeats 5]

CPU time of one thread. The kinds take turns, and the median of the repeats is printed. Needs
`pip install 'graph-machine[pyg]'`.
"""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import tyro
from torch import Tensor, nn
from torch_geometric.nn import GINConv, GPSConv

from graph_machine import GraphEncoder

GRAPHS, WIDTH, DEPTH, DEGREE = 32, 32, 4, 3
Inputs = tuple[Tensor, Tensor, Tensor]  # x, edge_index, batch


@dataclass(frozen=True)
class Settings:
    """Nodes per graph, and how often each kind is timed."""

    sizes: tuple[int, ...] = (30, 100)
    repeats: int = 5


class Gps(nn.Module):
    """GPS layers: message passing beside attention over the whole graph."""

    def __init__(self) -> None:
        super().__init__()

        def local() -> GINConv:
            wide = nn.Linear(WIDTH, 2 * WIDTH)
            return GINConv(nn.Sequential(wide, nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)))

        self.layers = nn.ModuleList(GPSConv(WIDTH, local(), heads=8) for _ in range(DEPTH))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        return x


class Gm(nn.Module):
    """A GraphEncoder with the same call."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.encoder = GraphEncoder(d_node=WIDTH, num_layers=DEPTH, **settings)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.encoder(x, edge_index, None, batch)


def kinds() -> dict[str, nn.Module]:
    """What is compared; the first is the measure."""
    return {
        "GPS": Gps(),
        "GraphEncoder": Gm(),
        "without an edge sublayer": Gm(num_edge_sublayers=0),
        "an edge sublayer in every layer": Gm(num_edge_sublayers=DEPTH),
        "the same, joint referral": Gm(num_edge_sublayers=DEPTH, referral="joint"),
    }


def graphs(nodes: int) -> Inputs:
    """Every node has three outgoing edges."""
    start = torch.arange(nodes).repeat_interleave(DEGREE)
    step = 7 * (1 + torch.arange(DEGREE).repeat(nodes))
    one = torch.stack([start, (start + step) % nodes])  # 2 e
    edges = torch.cat([one + nodes * graph for graph in range(GRAPHS)], dim=1)
    batch = torch.arange(GRAPHS).repeat_interleave(nodes)
    return torch.randn(GRAPHS * nodes, WIDTH), edges, batch


def measure(nodes: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of one forward and backward pass of each kind."""
    inputs, models = graphs(nodes), kinds()
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(repeats + 1):
        for name, model in models.items():
            start = time.process_time()
            model(*inputs).square().mean().backward()
            if turn:  # the first pass touches fresh memory
                times[name].append(time.process_time() - start)
    return {name: median(values) for name, values in times.items()}


def main(settings: Settings) -> None:
    """Print a Markdown table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {nodes: measure(nodes, settings.repeats) for nodes in settings.sizes}
    print("| | " + " | ".join(f"{nodes} nodes" for nodes in found) + " |")
    print("| --- |" + " ---: |" * len(found))
    for name in kinds():
        cells = [f"{1e3 * t[name]:.0f} ms ({t[name] / t['GPS']:.1f})" for t in found.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(tyro.cli(Settings))
