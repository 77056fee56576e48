"""To PyG and back, with the real torch_geometric; the encoder inside a PyG training loop."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool
from torch_geometric.utils import to_undirected

from graph_machine import GraphEncoder
from graph_machine.errors import GraphError, MissingExtraError
from graph_machine.graphs import edge_index_of, to_graph_machine, to_pyg


def path(n: int, width: int = 3) -> Data:
    nodes = torch.arange(n - 1)
    edge_index = to_undirected(torch.stack([nodes, nodes + 1]))
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, width, generator=generator)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_index.T.float())


def test_there_and_back() -> None:
    batch: Any = Batch.from_data_list([path(4), path(1), path(6)])
    dense = to_graph_machine(batch, num_edges=4)
    assert dense.x is not None
    assert dense.x.shape == (3, 6, 3)
    assert dense.node_mask.sum(dim=1).tolist() == [4, 1, 6]
    assert dense.graph.targets[0, 1].tolist() == [1, 0, 2, -1]
    back = to_pyg(dense.x, dense.graph, dense.node_mask)
    assert_close(back.x, batch.x)
    assert torch.equal(back.edge_index, batch.edge_index)
    assert_close(back.edge_attr, batch.edge_attr)
    assert torch.equal(back.batch, batch.batch)


def test_whole_numbers_are_types_there_and_back() -> None:
    data = path(3)
    data.edge_attr = torch.tensor([2, 0, 1, 1])
    dense = to_graph_machine(data, num_edges=3, num_edge_types=3)
    assert dense.x is not None
    assert dense.graph.num_categories == 5
    assert dense.graph.features is None
    assert to_pyg(dense.x, dense.graph).edge_type.tolist() == [2, 0, 1, 1]


def test_the_encoder_takes_both_forms() -> None:
    batch: Any = Batch.from_data_list([path(4), path(2), path(6)])
    torch.manual_seed(0)
    encoder = GraphEncoder(d_node=8, d_edge=4, num_layers=1, num_edges=4, d_in=3, d_edge_in=2)
    flat = encoder(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    dense = encoder(*to_graph_machine(batch, num_edges=4))
    assert_close(dense[to_graph_machine(batch, num_edges=4).node_mask], flat)


def test_learned_edges_as_edge_index() -> None:
    targets = torch.tensor([[[1, 0], [0, -1]], [[0, 1], [1, 0]]])
    weights = torch.tensor([[[0.9, 0.1], [1.0, 0.0]], [[0.5, 0.5], [0.6, 0.4]]])
    edge_index, weight = edge_index_of(targets, weights)
    assert edge_index.tolist() == [[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]
    assert_close(weight, torch.tensor([0.9, 1.0, 0.5, 0.5, 0.6]))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = GraphEncoder(d_node=16, d_edge=4, num_layers=2, num_edges=4, d_in=1)
        self.readout = nn.Linear(16, 2)

    def forward(self, data: Data) -> Tensor:
        nodes = self.encoder(data.x, data.edge_index, None, data.batch)
        return self.readout(global_mean_pool(nodes, data.batch))


def ring_or_path(seed: int) -> Data:
    """A ring, or a ring that is cut open."""
    n, closed = 6 + 2 * (seed % 3), seed // 3 % 2
    nodes = torch.arange(n)
    edges = torch.stack([nodes, (nodes + 1) % n])[:, : n if closed else n - 1]
    return Data(x=torch.ones(n, 1), edge_index=to_undirected(edges), y=torch.tensor([closed]))


def test_a_graph_classifier_learns_in_a_pyg_loop() -> None:
    torch.manual_seed(0)
    loader = DataLoader([ring_or_path(i) for i in range(48)], batch_size=12, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    while len(losses) < 200 and (not losses or losses[-1] > 0.3):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.3


def test_no_edge_index_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match="the data has no edge_index"):
        to_graph_machine(Data(x=torch.ones(2, 1)), num_edges=3)
    dense = to_graph_machine(path(3), num_edges=4)
    assert dense.x is not None
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'graph-machine\[pyg\]'"):
        to_pyg(dense.x, dense.graph)
