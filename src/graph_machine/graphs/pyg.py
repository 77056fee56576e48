"""To and from PyTorch Geometric's batches (extra `pyg`).

`to_graph_machine` only reads attributes and needs no torch_geometric; the way back makes its
objects and does.
"""

from copy import copy
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from graph_machine.errors import GraphError, MissingExtraError
from graph_machine.graphs.batches import bucketed, graph_sizes
from graph_machine.graphs.edge_index import (
    Direction,
    Overflow,
    check_choices,
    graph_from_edge_index,
)
from graph_machine.graphs.slots import InputGraph, check_apart, check_tensors

NAME = "to_graph_machine"


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
    num_edges: int | None = None,
    direction: Direction = "out",
    overflow: Overflow = "error",
    num_edge_types: int | None = None,
    generator: torch.Generator | None = None,
) -> DenseBatch:
    """A PyG `Data` or `Batch` (x, edge_index, edge_attr, edge_type, pos, batch) as padded graphs.

    An `edge_attr` of whole numbers is taken as edge types, one of floats as edge features. Pass the
    same `num_edge_types` and `direction` as to the encoder. Without `num_edge_types`, the number of
    types is that of this batch. `num_edges` is for `given_edges=first`; None: as many slots as the
    largest degree needs. Labels and other attributes stay in `data`.

    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.randn(3, 16), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> dense = to_graph_machine(data, num_edges=4)
    >>> dense.x.shape, dense.graph.targets.shape  # b n d, b n k
    (torch.Size([1, 3, 16]), torch.Size([1, 3, 4]))
    """
    made = prepared(data)
    x, edge_index, batch = _nodes_and_edges(data)
    if made is None:
        sizes = graph_sizes(batch, data.num_nodes, NAME)
        _check_no_empty_graph(data, batch, len(sizes))
        rules = {"num_edges": num_edges, "overflow": overflow, "generator": generator}
        flat = _slots(data, NAME, direction, num_edge_types, **rules)
        if batch is not None:
            check_apart(NAME, edge_index, batch)
    else:
        flat, sizes = made.graph, made.sizes
    (bucket,) = bucketed(sizes, edge_index.device, padding=None)
    nodes = None if x is None else x[bucket.ids]
    mask = bucket.mask
    if mask is None:
        mask = torch.ones_like(bucket.ids, dtype=torch.bool)
    elif nodes is not None:
        nodes = nodes * mask.reshape(*mask.shape, *[1] * (nodes.ndim - 2))
    return DenseBatch(nodes, bucket.graph(flat), mask)


class Shape(NamedTuple):
    """Facts about a prepared graph that can be read without its tensors."""

    nodes: int
    degree: int
    categories: int
    direction: str


class GraphMachineEdges:
    """A PyG transform that checks and sorts the edges of a `Data` once, before training.

    Put it last among the transforms of a dataset, with the `direction` and `num_edge_types` of the
    encoder. PyG makes batches as usual. `encoder(batch)` then does not read tensor values, so a
    GPU never waits for the CPU.

    >>> from torch_geometric.data import Batch, Data
    >>> from graph_machine import GraphEncoder
    >>> data = Data(x=torch.randn(3, 16), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> batch = Batch.from_data_list([GraphMachineEdges()(data) for _ in range(4)])
    >>> GraphEncoder(d_in=16, d_node=32, num_layers=1)(batch).shape
    torch.Size([12, 32])
    """

    def __init__(self, direction: Direction = "out", num_edge_types: int | None = None) -> None:
        check_choices(direction, "error")
        self.direction: Direction = direction
        self.num_edge_types = num_edge_types

    def __call__(self, data: Any) -> Any:
        _nodes_and_edges(data)
        types = self.num_edge_types
        graph = _slots(data, type(self).__name__, self.direction, types, overflow="error")
        node, slot = (graph.targets >= 0).nonzero(as_tuple=True)
        data = copy(data)
        data.gm_edge_index = torch.stack([node, graph.targets[node, slot]])  # PyG shifts an index
        data.gm_slot, data.gm_category = slot, graph.categories[node, slot]
        if graph.features is not None:
            data.gm_edge_attr = graph.features[node, slot]
        data.gm_shape = Shape(data.num_nodes, graph.num_edges, graph.num_categories, self.direction)
        return data

    def __repr__(self) -> str:
        return f"GraphMachineEdges({self.direction!r}, num_edge_types={self.num_edge_types})"


class Prepared(NamedTuple):
    graph: InputGraph  # slots (n, k) with flat targets
    shapes: list[Shape]  # of every graph
    used: Int[Tensor, " e"]  # slots that hold an edge, counted through all n k

    @property
    def sizes(self) -> list[int]:
        """Nodes of every graph."""
        return [shape.nodes for shape in self.shapes]


def prepared(data: Any) -> Prepared | None:
    """What `GraphMachineEdges` stored in a `Data` or a `Batch`; None if it was not applied."""
    shapes = getattr(data, "gm_shape", None)
    if shapes is None:
        return None
    shapes = [shapes] if isinstance(shapes, Shape) else shapes
    n, k = sum(shape.nodes for shape in shapes), max(shape.degree for shape in shapes)
    source, target = data.gm_edge_index
    used, features = source * k + data.gm_slot, getattr(data, "gm_edge_attr", None)
    categories = max(shape.categories for shape in shapes)

    def spread(given: Tensor, fill: int) -> Tensor:
        whole = given.new_full((n * k, *given.shape[1:]), fill)
        return whole.index_put((used,), given).unflatten(0, (n, k))

    graph = InputGraph(
        spread(target, -1),
        spread(data.gm_category, categories - 1),
        categories,
        None if features is None else spread(features, 0),
    )
    return Prepared(graph, shapes, used)


def _nodes_and_edges(data: Any) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """x, edge_index and batch of the data: tensors on one device, with a row of x per node."""
    if hasattr(data, "node_types"):
        raise GraphError(
            f"{NAME}: a {type(data).__name__} has several types of nodes; pass "
            f"data.to_homogeneous()."
        )
    if not hasattr(data, "edge_index") or not hasattr(data, "num_nodes"):
        several = "; pass Batch.from_data_list(...)" if isinstance(data, list | tuple) else ""
        raise GraphError(
            f"{NAME}: data should be a PyG Data or Batch, got {type(data).__name__}{several}."
        )
    x, edge_index, batch = getattr(data, "x", None), data.edge_index, getattr(data, "batch", None)
    if edge_index is None:
        raise GraphError(f"{NAME}: the data has no edge_index.")
    check_tensors(NAME, {"edge_index": edge_index})
    others = {
        name: getattr(data, name, None) for name in ("x", "batch", "edge_attr", "edge_type", "pos")
    }
    others = {name: given for name, given in others.items() if given is not None}
    check_tensors(NAME, others, ("edge_index", edge_index.device))
    if x is not None and (x.ndim == 0 or len(x) != data.num_nodes):
        raise GraphError(
            f"{NAME}: x should have a row for each of the {data.num_nodes} nodes, got "
            f"{tuple(x.shape)}."
        )
    return x, edge_index, batch


def _slots(
    data: Any, where: str, direction: Direction, num_types: int | None, **rules: Any
) -> InputGraph:
    """The edges of the data as slots (n, k), with features and types if it has them."""
    features, types = getattr(data, "edge_attr", None), getattr(data, "edge_type", None)
    if features is not None and features.ndim == 1:
        features = features.unsqueeze(-1)
    if features is not None and not features.is_floating_point():
        if types is not None:
            features = features.float()
        elif features.ndim == 2 and features.shape[1] == 1:
            features, types = None, features.squeeze(-1)
        else:
            raise GraphError(
                f"{NAME}: edge_attr holds {features.dtype} {tuple(features.shape)}; types "
                f"should be (e,): combine the columns into one number, or pass edge_attr.float()."
            )
    if types is None and num_types is not None and num_types > 1:
        raise GraphError(f"{NAME}: num_edge_types={num_types}, but the data has no edge types.")
    return graph_from_edge_index(
        data.edge_index,
        num_nodes=data.num_nodes,
        edge_types=types,
        num_types=num_types,
        edge_features=features,
        direction=direction,
        positions=getattr(data, "pos", None),
        where=where,
        **rules,
    )


def _check_no_empty_graph(data: Any, batch: Tensor | None, found: int) -> None:
    """Raise GraphError for a graph without nodes: it would shift the labels after it."""
    if batch is None:
        return
    count = getattr(data, "num_graphs", None)  # counts empty graphs at the end, too
    count = int(batch[-1]) + 1 if count is None else count
    if found != count:
        empty = min(set(range(count)) - set(batch.tolist()))
        raise GraphError(
            f"{NAME}: graph {empty} of the batch has no nodes; leave it out, and its label."
        )


def to_pyg(
    x: Shaped[Tensor, "b n ..."] | None,
    graph: InputGraph,
    node_mask: Bool[Tensor, "b n"] | None = None,
    *,
    direction: Direction = "out",
) -> Any:
    """Padded graphs as a PyG `Batch`: nodes in their order, edges in the order of their slots.

    Pass the `direction` with which the graph was made. Each edge of `both` is returned once; edges
    of `undirected` are returned in both directions. Types are returned as `edge_type` (also those
    that came as `edge_attr`; not if there is only one type), features as `edge_attr`. A self edge
    becomes a self-loop if it has a type or features that are not all 0.

    Duplicates, edges that `overflow` dropped, `y`, `pos` and other attributes are lost. Set them on
    the result (`back.y = batch.y`); graphs and nodes keep their order.

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
    check_choices(direction, "error")
    sizes = _sizes(x, graph, node_mask)
    typed = graph.num_categories > (4 if direction == "both" else 3)
    whole = graph.expand(len(sizes))
    listed = _listed(whole, direction)
    found: list[Any] = []
    for number, size in enumerate(sizes):
        node, slot = listed[number, :size].nonzero(as_tuple=True)
        ends = [node, whole.targets[number, node, slot]]
        parts: dict[str, Any] = {"num_nodes": size} if x is None else {"x": x[number, :size]}
        parts["edge_index"] = torch.stack(ends[::-1] if direction == "in" else ends)
        if typed:
            parts["edge_type"] = whole.categories[number, node, slot]
        if whole.features is not None:
            parts["edge_attr"] = whole.features[number, node, slot]
        found.append(Data(**parts))
    return Batch.from_data_list(found)


def _sizes(x: Tensor | None, graph: InputGraph, node_mask: Tensor | None) -> list[int]:
    """Number of nodes of every graph of the batch; they come first in their row."""
    *batch, n, _ = graph.check().targets.shape
    given = x if x is not None else node_mask
    shape = (batch[0] if batch else 1, n) if given is None else tuple(given.shape[:2])
    masked = shape if node_mask is None else tuple(node_mask.shape)
    if masked != shape or n != shape[1] or batch not in ([], [1], [shape[0]]):
        raise GraphError(
            f"to_pyg: x, graph and node_mask differ: (b, n) = {shape}, {(*batch, n)} and {masked}."
        )
    if node_mask is None:
        return [n] * shape[0]
    if bool((node_mask[:, 1:] & ~node_mask[:, :-1]).any()):
        raise GraphError("to_pyg: node_mask should be True first and then False, in every row.")
    return node_mask.sum(dim=1).tolist()


def _listed(graph: InputGraph, direction: Direction) -> Bool[Tensor, "b n k"]:
    """Slots with an edge of the input: not empty, not a plain self edge, not a way back."""
    types = graph.num_categories - 2  # then self and empty
    nodes = torch.arange(graph.targets.shape[1], device=graph.targets.device)
    mere = (graph.targets == nodes.unsqueeze(-1)) & (graph.categories >= types)
    if graph.features is not None:
        mere &= (graph.features == 0).all(dim=-1)
    listed = (graph.targets >= 0) & ~mere
    if direction == "both":
        listed &= (graph.categories < types // 2) | (graph.categories >= types)
    return listed


def edge_index_of(
    targets: Int[Tensor, "*b n k s"], weights: Float[Tensor, "*b n k s"], threshold: float = 0.5
) -> tuple[Int[Tensor, "2 e"], Float[Tensor, " e"]]:
    """The edges that an encoder made (`GraphEncoder.encode`) as `edge_index` and `edge_weight`.

    Entries with at least `threshold` of their edge's address are kept. In the dense form
    (b, n, k, s), node i of graph g, padded to n nodes, has the id g * n + i.

    >>> targets = torch.tensor([[[1, 0]], [[0, -1]]])  # n k s
    >>> edge_index_of(targets, torch.tensor([[[0.9, 0.1]], [[1.0, 0.0]]]))
    (tensor([[0, 1],
            [1, 0]]), tensor([0.9000, 1.0000]))
    """
    check_tensors("edge_index_of", {"targets": targets, "weights": weights})
    shape = tuple(targets.shape)
    if targets.shape != weights.shape or len(shape) not in (3, 4):
        raise GraphError(
            f"edge_index_of: targets and weights should both be (n, k, s) or (b, n, k, s), got "
            f"{shape} and {tuple(weights.shape)}."
        )
    if len(shape) == 4:
        firsts = torch.arange(shape[0], device=targets.device)[:, None, None, None] * shape[1]
        targets = torch.where(targets >= 0, targets + firsts, -1).flatten(0, 1)
        weights = weights.flatten(0, 1)
    kept = (targets >= 0) & (weights >= threshold)
    source = kept.nonzero(as_tuple=True)[0]
    return torch.stack([source, targets[kept]]), weights[kept]
