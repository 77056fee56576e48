"""To PyG and back, with the real torch_geometric; the encoder inside a PyG training loop."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data, HeteroData
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


def there_and_back(data: Any, *, direction: Any = "out", **how: Any) -> Any:
    dense = to_graph_machine(data, num_edges=4, direction=direction, **how)
    return to_pyg(*dense, direction=direction)


def looped(**more: Any) -> Any:
    """Nodes 0 -> 1 -> 2, and a self-loop of node 1."""
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 2]])
    return Data(x=torch.arange(3.0).unsqueeze(-1), edge_index=edge_index, **more)


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_edges_come_back_as_they_went(direction: Any) -> None:
    features = torch.tensor([[1.0], [2.0], [3.0]])
    for more in ({"edge_attr": features}, {"edge_attr": features, "edge_type": torch.arange(3)}):
        data = looped(**more)
        back = there_and_back(data, direction=direction)
        order = torch.argsort(back.edge_attr[:, 0])
        assert torch.equal(back.edge_index[:, order], data.edge_index)
        assert_close(back.edge_attr[order], features)
        assert ("edge_type" in back) == ("edge_type" in data)
        if "edge_type" in data:
            assert torch.equal(back.edge_type[order], data.edge_type)


def test_undirected_edges_come_back_both_ways() -> None:
    back = there_and_back(looped(edge_attr=torch.ones(3, 1)), direction="undirected")
    assert sorted(back.edge_index.T.tolist()) == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]


def test_a_mere_self_loop_does_not_come_back_but_a_typed_one_does() -> None:
    assert there_and_back(looped()).edge_index.tolist() == [[0, 1], [1, 2]]
    back = there_and_back(looped(edge_attr=torch.tensor([0, 1, 0])))
    assert back.edge_index.tolist() == [[0, 1, 1], [1, 1, 2]]
    assert back.edge_type.tolist() == [0, 1, 0]
    assert back.edge_attr is None
    first, again = (
        to_graph_machine(d, num_edges=4) for d in (looped(edge_attr=back.edge_type), back)
    )
    assert torch.equal(first.graph.categories, again.graph.categories)


def test_without_node_features_and_with_labels_set_again() -> None:
    edge = torch.tensor([[0], [1]])
    batch: Any = Batch.from_data_list([Data(edge_index=edge, num_nodes=n) for n in (2, 3)])
    back = there_and_back(batch)
    assert back.x is None
    assert back.num_nodes == 5
    assert torch.equal(back.batch, batch.batch)
    assert torch.equal(back.edge_index, batch.edge_index)
    back.y = torch.tensor([4, 5])
    assert back.num_graphs == len(back.y)
    assert to_pyg(None, to_graph_machine(batch, num_edges=3).graph).num_nodes == 6


def test_bad_padding_on_the_way_back() -> None:
    dense = to_graph_machine(path(3), num_edges=4)
    with pytest.raises(GraphError, match="node_mask"):
        to_pyg(dense.x, dense.graph, torch.tensor([[True, False, True]]))
    with pytest.raises(GraphError, match=r"differ: \(b, n\) = \(1, 2\), \(1, 3\) and \(1, 2\)"):
        to_pyg(torch.ones(1, 2, 1), dense.graph)


def test_edges_between_graphs_are_an_error() -> None:
    batch: Any = Batch.from_data_list([path(4), path(4)])
    batch.edge_index[1, 2] = 6
    with pytest.raises(GraphError, match=r"edge 2 \(\[1, 6\]\) leads from graph 0 to graph 1"):
        to_graph_machine(batch, num_edges=4)


@pytest.mark.parametrize(("place", "sizes"), [(1, (4, 0, 4)), (2, (4, 4, 0)), (0, (0, 4))])
def test_empty_graphs_are_named(place: int, sizes: tuple[int, ...]) -> None:
    none = Data(x=torch.ones(0, 3), edge_index=torch.zeros(2, 0).long(), edge_attr=torch.ones(0, 2))
    batch = Batch.from_data_list([path(n) if n else none for n in sizes])
    with pytest.raises(GraphError, match=f"graph {place} of the batch has no nodes"):
        to_graph_machine(batch, num_edges=4)
    bare = Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 0).long(), batch=torch.tensor([0, 2]))
    with pytest.raises(GraphError, match="graph 1"):
        to_graph_machine(bare, num_edges=4)


def test_types_that_cannot_be_read() -> None:
    columns = looped(edge_attr=torch.zeros(3, 3).long())  # as in OGB's molecules
    with pytest.raises(GraphError, match=r"edge_attr holds torch.int64 \(3, 3\); types should"):
        to_graph_machine(columns, num_edges=4)
    with pytest.raises(GraphError, match="num_edge_types=4"):
        to_graph_machine(path(3), num_edges=4, num_edge_types=4)


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
    with pytest.raises(GraphError, match="edge_index"):
        to_graph_machine(Data(x=torch.ones(2, 1)), num_edges=3)
    dense = to_graph_machine(path(3), num_edges=4)
    assert dense.x is not None
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'graph-machine\[pyg\]'"):
        to_pyg(dense.x, dense.graph)


@pytest.mark.usefixtures("unchecked")
def test_data_that_cannot_be_taken() -> None:
    def changed(**changes: Any) -> Data:
        data = path(3)
        for name, value in changes.items():
            setattr(data, name, value)
        return data

    cases: list[tuple[Any, str]] = [
        (None, "data should be a PyG Data or Batch, got NoneType"),
        ([path(3)], r"got list; pass Batch.from_data_list\(...\)"),
        (torch.zeros(3), "data should be a PyG Data or Batch, got Tensor"),
        (HeteroData(), r"a HeteroData has several types of nodes; pass data.to_homogeneous\(\)"),
        (changed(x=torch.zeros(3, 3, device="meta")), "edge_index is on cpu, x on meta; move the"),
        (
            changed(batch=torch.zeros(3, dtype=torch.long, device="meta")),
            "edge_index is on cpu, batch on meta",
        ),
        (changed(x=np.zeros((3, 3))), r"x should be a tensor, got ndarray; write torch.as_tensor"),
        (changed(edge_index=np.zeros((2, 4))), "edge_index should be a tensor, got nda"),
        (
            changed(x=torch.zeros(2, 3), num_nodes=3),
            r"x should have a row for each of the 3 nodes, got \(2, 3\)",
        ),
    ]
    for data, message in cases:
        with pytest.raises(GraphError, match=message) as caught:
            to_graph_machine(data, num_edges=4)
        assert str(caught.value).startswith("to_graph_machine: ")


@pytest.mark.usefixtures("unchecked")
def test_made_edges_of_the_dense_form_are_numbered_through() -> None:
    targets = torch.tensor([[[[1]], [[0]], [[-1]]], [[[2]], [[1]], [[0]]]])  # b n k s
    weights = (targets >= 0).float()
    found, shares = edge_index_of(targets, weights)
    assert found.tolist() == [[0, 1, 3, 4, 5], [1, 0, 5, 4, 3]]
    assert shares.tolist() == [1.0] * 5
    with pytest.raises(GraphError, match=r"should both be \(n, k, s\) or \(b, n, k, s\), got"):
        edge_index_of(targets[0, 0], weights[0, 0])
    with pytest.raises(GraphError, match="weights"):
        edge_index_of(targets, None)  # type: ignore[arg-type]
