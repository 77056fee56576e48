"""A node classifier in PyTorch Geometric, with Graph Machine, GINE or GPS layers.

Two paths of 12 nodes, one node is marked: which nodes are on its path? A model has to look along
up to 11 edges with four layers. Needs `pip install 'graph-machine[pyg]'`.

    python examples/pyg_classifier.py --layers gm
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GPSConv
from torch_geometric.utils import to_undirected

from graph_machine import GraphEncoder


@dataclass(frozen=True)
class Settings:
    """Defaults take about a minute on one CPU core."""

    layers: Literal["gm", "gine", "gps"] = "gm"
    width: int = 32
    depth: int = 4
    graphs: int = 1_000
    epochs: int = 8
    lr: float = 2e-3
    seed: int = 0


def two_paths(generator: torch.Generator) -> Data:
    """Two paths in random order; y is 1 on the path of the marked node."""
    size = 12
    order = torch.randperm(2 * size, generator=generator)
    place = torch.randint(2 * size, (), generator=generator)
    x = torch.zeros(2 * size, 1)
    x[order[place]] = 1.0
    y = torch.zeros(2 * size, dtype=torch.long)
    y[order] = (torch.arange(2 * size) // size == place // size).long()
    steps = torch.arange(2 * size - 1)
    steps = steps[steps != size - 1]
    edges = order[torch.stack([steps, steps + 1])]
    return Data(x=x, edge_index=to_undirected(edges), y=y)


class Encoder(nn.Module):
    """x and edge_index to node features: three kinds of layers behind one call."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.kind, width = settings.layers, settings.width
        if self.kind == "gm":
            self.gm = GraphEncoder(d_node=width, num_layers=settings.depth, num_edges=4, d_in=1)
            return
        self.first = nn.Linear(1, width)
        self.edge = nn.Parameter(torch.zeros(1, width))

        def gine() -> GINEConv:
            mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            return GINEConv(mlp)

        make = gine if self.kind == "gine" else lambda: GPSConv(width, gine(), heads=4)
        self.layers = nn.ModuleList(make() for _ in range(settings.depth))

    def forward(self, data: Data) -> Tensor:
        if self.kind == "gm":
            return self.gm(data.x, data.edge_index, None, data.batch)
        x = self.first(data.x)
        edges = self.edge.expand(data.edge_index.shape[1], -1)  # pyrefly: ignore
        for layer in self.layers:
            if self.kind == "gps":
                x = layer(x, data.edge_index, data.batch, edge_attr=edges)
            else:
                x = x + layer(x, data.edge_index, edges)
        return x


def train(settings: Settings) -> float:
    """Train from scratch; returns the accuracy on new graphs."""
    torch.manual_seed(settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    graphs = [two_paths(generator) for _ in range(settings.graphs + 500)]
    encoder, readout = Encoder(settings), nn.Linear(settings.width, 2)
    parameters = [*encoder.parameters(), *readout.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr)
    for _ in range(settings.epochs):
        for batch in DataLoader(graphs[500:], batch_size=32, shuffle=True):
            logits = readout(encoder(batch))
            loss = nn.functional.cross_entropy(logits, batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    encoder.eval()
    with torch.no_grad():
        test = next(iter(DataLoader(graphs[:500], batch_size=500)))
        logits = readout(encoder(test))
    return float((logits.argmax(dim=-1) == test.y).float().mean())


def main() -> None:
    import tyro

    settings = tyro.cli(Settings)
    print(f"{settings.layers}: accuracy {train(settings):.3f}")


if __name__ == "__main__":
    main()
