"""To and from PyTorch Geometric's batches (extra `pyg`).

`to_graph_machine` only reads attributes and needs no torch_geometric; the way back makes its
objects and does.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from graph_machine.errors import GraphError, MissingExtraError
from graph_machine.graphs.batches import bucketed, graph_ranges
from graph_machine.graphs.edge_index import Direction, Overflow, graph_from_edge_index
from graph_machine.graphs.slots import InputGraph


class DenseBatch(NamedTuple):
    """A padded batch of graphs, as `GraphEncoder` and `GraphMachine` take it.

    >>> from graph_machine.graphs import sequence_graph
    >>> dense = DenseBatch(None, sequence_graph(3, 2), torch.ones(1, 3, dtype=torch.bool))
    >>> dense.graph.targets.shape  # n k
    torch.Size([3, 2])
    """

    x: Shaped[Tensor, "b n ..."] | None
    graph: InputGraph
    node_mask: Bool[Tensor, "b n"]


def to_graph_machine(
    data: Any,
    *,
    num_edges: int,
    direction: Direction = "out",
    overflow: Overflow = "error",
    num_edge_types: int | None = None,
    generator: torch.Generator | None = None,
) -> DenseBatch:
    """A PyG `Data` or `Batch` (x, edge_index, edge_attr, edge_type, pos, batch) as padded graphs.

    An `edge_attr` of whole numbers is taken as edge types, one of floats as edge features.

    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.randn(3, 16), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> dense = to_graph_machine(data, num_edges=4)
    >>> dense.x.shape, dense.graph.targets.shape  # b n d, b n k
    (torch.Size([1, 3, 16]), torch.Size([1, 3, 4]))
    """
    x, edge_index = data.x, data.edge_index
    if edge_index is None:
        raise GraphError("to_graph_machine: the data has no edge_index.")
    features, types = data.edge_attr, getattr(data, "edge_type", None)
    if features is not None and features.ndim == 1:
        features = features.unsqueeze(-1)
    if features is not None and not features.is_floating_point() and types is None:
        features, types = None, features.squeeze(-1)
    ranges = graph_ranges(getattr(data, "batch", None), data.num_nodes, "to_graph_machine")
    flat = graph_from_edge_index(
        edge_index,
        num_nodes=data.num_nodes,
        num_edges=num_edges,
        edge_types=types,
        num_types=num_edge_types,
        edge_features=features,
        direction=direction,
        overflow=overflow,
        positions=getattr(data, "pos", None),
        generator=generator,
        where="to_graph_machine",
    )
    (bucket,) = bucketed(ranges, edge_index.device, padding=None)
    nodes = None
    if x is not None:
        real = bucket.mask.reshape(*bucket.mask.shape, *[1] * (x.ndim - 1))
        nodes = x[bucket.ids] * real
    return DenseBatch(nodes, bucket.graph(flat), bucket.mask)


def to_pyg(
    x: Shaped[Tensor, "b n ..."], graph: InputGraph, node_mask: Bool[Tensor, "b n"] | None = None
) -> Any:
    """Padded graphs as a PyG `Batch`: edges in the order of their slots, without self edges.

    `edge_type` holds categories and `edge_attr` features, where the graph has them.

    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.randn(3, 16), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> dense = to_graph_machine(data, num_edges=4)
    >>> to_pyg(dense.x, dense.graph, dense.node_mask).edge_index
    tensor([[0, 1, 2],
            [1, 2, 0]])
    """
    try:
        from torch_geometric.data import Batch, Data
    except ImportError:
        raise MissingExtraError("torch_geometric", "pyg", "A PyG batch") from None
    b, n = x.shape[:2]
    shape = (b, n, graph.num_edges)
    targets, categories = graph.targets.expand(shape), graph.categories.expand(shape)
    found: list[Any] = []
    for number in range(b):
        size = n if node_mask is None else int(node_mask[number].sum())
        rows = targets[number, :size]
        own = torch.arange(size, device=rows.device).unsqueeze(-1)
        listed = (rows >= 0) & (rows != own)
        source, slot = listed.nonzero(as_tuple=True)
        features = None
        if graph.features is not None:
            features = graph.features.expand(*shape, -1)[number, source, slot]
        found.append(
            Data(
                x=x[number, :size],
                edge_index=torch.stack([source, rows[source, slot]]),
                edge_type=categories[number, source, slot],
                edge_attr=features,
            )
        )
    return Batch.from_data_list(found)


def edge_index_of(
    targets: Int[Tensor, "n k s"], weights: Float[Tensor, "n k s"], threshold: float = 0.5
) -> tuple[Int[Tensor, "2 e"], Float[Tensor, " e"]]:
    """The edges that an encoder made (`GraphEncoder.encode`) as `edge_index` and `edge_weight`.

    Entries that hold at least `threshold` of their edge's address are kept.

    >>> targets = torch.tensor([[[1, 0]], [[0, -1]]])  # n k s
    >>> edge_index_of(targets, torch.tensor([[[0.9, 0.1]], [[1.0, 0.0]]]))
    (tensor([[0, 1],
            [1, 0]]), tensor([0.9000, 1.0000]))
    """
    kept = (targets >= 0) & (weights >= threshold)
    source = kept.nonzero(as_tuple=True)[0]
    return torch.stack([source, targets[kept]]), weights[kept]
