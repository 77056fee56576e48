"""Any `edge_index` as edge slots: direction, self-loops, duplicates, and more edges than slots."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import GraphError, did_you_mean
from graph_machine.graphs.checks import check_edges, check_finite, check_positions
from graph_machine.graphs.slots import InputGraph

Overflow = Literal["error", "first", "sample", "nearest"]
Direction = Literal["out", "in", "both", "undirected"]


@dataclass(frozen=True)
class _Edges:
    """Edges as columns: the node that holds the slot, its target, type and features."""

    source: Tensor
    target: Tensor
    types: Tensor
    num_types: int
    features: Tensor | None

    def __getitem__(self, rows: Tensor) -> "_Edges":
        features = None if self.features is None else self.features[rows]
        return replace(
            self,
            source=self.source[rows],
            target=self.target[rows],
            types=self.types[rows],
            features=features,
        )

    def reversed(self) -> "_Edges":
        return replace(self, source=self.target, target=self.source)

    def keys(self, num_nodes: int) -> Tensor:
        """One number for each (source, target, type)."""
        return (self.source * num_nodes + self.target) * self.num_types + self.types


def graph_from_edge_index(
    edge_index: Int[Tensor, "2 e"],
    *,
    num_nodes: int,
    num_edges: int | None = None,
    edge_types: Int[Tensor, " e"] | None = None,
    num_types: int | None = None,
    edge_features: Float[Tensor, "e f"] | None = None,
    direction: Direction = "out",
    overflow: Overflow = "error",
    positions: Float[Tensor, "n p"] | None = None,
    generator: torch.Generator | None = None,
    fixed: bool = False,
    check: bool = True,
    where: str = "graph_from_edge_index",
) -> InputGraph:
    """Edges `source -> target` into slots (n, k): the self edge first, then edges in their order.

    `direction` says whose slots an edge goes into: its source's (`out`), its target's (`in`, as
    messages flow in PyG), both nodes' with separate types for the way back (`both`), or both nodes'
    with the same type (`undirected`). A node's first self-loop gives its type and features to the
    self edge; it has no way back. An edge that is listed twice with the same type counts once,
    unless edges have features; then it is a parallel edge, and so is a second self-loop.

    Categories: the edge's type (0 when there are none), then `self`, then `empty`. `num_edges` is
    k; None: as many as the largest degree needs, for a model that takes given edges as a set
    (`given_edges=always`). With a k, a node with more than k - 1 edges is an error, unless
    `overflow` says to keep the first ones, a random `sample`, or those to the `nearest` nodes by
    their `positions`; what is kept stays in its order. `fixed` samples without chance: always the
    same of a node's edges, spread over its list. `check=False` does not look for features and
    positions that are not finite.

    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])  # source, target
    >>> graph_from_edge_index(ring, num_nodes=3, num_edges=3).targets  # n k
    tensor([[ 0,  1, -1],
            [ 1,  2, -1],
            [ 2,  0, -1]])
    """
    check_choices(direction, overflow)
    if num_nodes < 1:
        raise GraphError(f"{where}: the graph is empty (num_nodes = {num_nodes}).")
    if num_edges is not None and num_edges < 1:
        raise GraphError(f"{where}: needs k >= 1 edge slots, got {num_edges}.")
    check_edges(where, edge_index, edge_types, edge_features, num_nodes)
    source, target = edge_index.long()
    types = torch.zeros_like(source) if edge_types is None else edge_types.long()
    lowest, highest = (int(types.min()), int(types.max())) if len(types) else (0, 0)
    num_types = highest + 1 if num_types is None else num_types
    if lowest < 0 or highest >= num_types:
        raise GraphError(
            f"{where}: edge types should be 0 to {num_types - 1}, got {lowest} to {highest}."
        )
    edges = _Edges(source, target, types, num_types, edge_features)
    positions = check_positions(where, positions, num_nodes) if overflow == "nearest" else None
    for what, rows in (("features of edge", edge_features), ("positions of node", positions)):
        if check and rows is not None:
            check_finite(where, what, rows)
    if direction != "out":
        edges = _directed(edges, direction, num_nodes)
    if edges.features is None:
        edges = edges[_first_of_each(edges.keys(num_nodes))]
    if num_edges is None and edge_types is None:
        # Which of several self-loops comes first does not matter then.
        loops = edges.source == edges.target
        edges = replace(edges, types=edges.types.masked_fill(loops, edges.num_types))
    loops = (edges.source == edges.target).nonzero().flatten()
    own = torch.zeros_like(edges.source, dtype=torch.bool)  # the first self-loop of each node
    own[loops[_first_of_each(edges.source[loops])]] = True
    loop_edges, edges = edges[own], edges[~own]
    degree = torch.bincount(edges.source, minlength=num_nodes)
    if num_edges is None:
        num_edges = 1 + int(degree.max())
    if overflow == "error" and int(degree.max()) > num_edges - 1:
        node = int(degree.argmax())
        raise GraphError(
            f"{where}: node {node} has {int(degree[node])} edges, but k = {num_edges} slots "
            f"hold the self edge and {num_edges - 1} more; raise num_edges or choose "
            f"overflow='sample', 'nearest' or 'first'."
        )
    if overflow in ("sample", "nearest") and int(degree.max()) > num_edges - 1:
        # Only the choice is by chance or by distance. Slots are filled in the edges' own order.
        preferred = _preference(edges, degree, positions, generator, fixed=fixed)
        ranks = _ranks(edges[preferred].source, degree)
        edges = edges[preferred[ranks < num_edges - 1].sort().values]
    return _fill_slots(edges, loop_edges, num_nodes, num_edges, typed=edge_types is not None)


def _ranks(sources: Tensor, degree: Tensor) -> Tensor:
    """The place of each edge among those of its source, from 0, where sources may be mixed."""
    order = sources.argsort(stable=True)
    first = degree.cumsum(0) - degree
    places = torch.arange(len(sources), device=sources.device) - first[sources[order]]
    return torch.empty_like(places).scatter_(0, order, places)


def _fill_slots(
    edges: _Edges, loops: _Edges, num_nodes: int, num_edges: int, *, typed: bool
) -> InputGraph:
    """Edges to slots: rank among the source's edges, after self."""
    num_types, device = edges.num_types, edges.source.device
    degree = torch.bincount(edges.source, minlength=num_nodes)
    slot = _ranks(edges.source, degree) + 1
    kept = slot < num_edges
    edges, slot = edges[kept], slot[kept]
    shape = (num_nodes, num_edges)
    targets = torch.full(shape, -1, dtype=torch.long, device=device)
    categories = torch.full_like(targets, num_types + 1)
    targets[:, 0], categories[:, 0] = torch.arange(num_nodes, device=device), num_types
    if typed:
        categories[loops.source, 0] = loops.types
    targets[edges.source, slot], categories[edges.source, slot] = edges.target, edges.types
    features = None
    if edges.features is not None and loops.features is not None:
        features = edges.features.new_zeros(*shape, edges.features.shape[-1])
        features[edges.source, slot] = edges.features
        features[loops.source, 0] = loops.features
    return InputGraph(targets, categories, num_types + 2, features)


def check_choices(direction: str, overflow: str) -> None:
    """Raise one clear line for a direction or an overflow rule that does not exist."""
    rules = (("direction", direction, Direction), ("overflow rule", overflow, Overflow))
    for what, given, known in rules:
        options = get_args(known)
        if given not in options:
            raise GraphError(
                f"Unknown {what} '{given}'.{did_you_mean(given, options)} "
                f"Known: {', '.join(options)}."
            )


def _directed(edges: _Edges, direction: Direction, num_nodes: int) -> _Edges:
    """Edges as the slots of the nodes that hold them."""
    back = edges.reversed()
    if direction == "in":
        return back
    if direction == "both":
        back = replace(back, types=back.types + edges.num_types)
        back = back[back.source != back.target]  # a self-loop is its own way back
        num_types = 2 * edges.num_types
    else:
        # PyG lists an undirected edge both ways: then the way back is there already.
        back = back[~torch.isin(back.keys(num_nodes), edges.keys(num_nodes))]
        num_types = edges.num_types
    features = None
    if edges.features is not None and back.features is not None:
        features = torch.cat([edges.features, back.features])
    return _Edges(
        torch.cat([edges.source, back.source]),
        torch.cat([edges.target, back.target]),
        torch.cat([edges.types, back.types]),
        num_types,
        features,
    )


def _first_of_each(keys: Tensor) -> Tensor:
    """Positions of the first occurrence of every key, in their order."""
    values, inverse = keys.unique(return_inverse=True)
    first = keys.new_full((len(values),), len(keys))
    positions = torch.arange(len(keys), device=keys.device)
    return first.scatter_reduce(0, inverse, positions, "amin").sort().values


def _preference(
    edges: _Edges,
    degree: Tensor,
    positions: Tensor | None,
    generator: torch.Generator | None,
    *,
    fixed: bool,
) -> Tensor:
    """All edges, those to keep first: the nearest, if there are positions, else a sample."""
    if positions is not None:
        # Whole numbers would wrap round or overflow, and so would half precision.
        exact = torch.promote_types(positions.dtype, torch.float32)
        places = positions.to(exact if positions.is_floating_point() else torch.float64)
        distances = (places[edges.source] - places[edges.target]).square().sum(dim=-1)
        return distances.argsort(stable=True)
    if fixed and generator is None:
        # Golden steps through a node's list, so that it matters neither when nor in which batch.
        return (_ranks(edges.source, degree) * 2_654_435_769 % 2**32).argsort(stable=True)
    # Drawn where the generator lives, so that a seed means the same on every device.
    drawn = torch.randperm(len(edges.source), generator=generator)
    return drawn.to(edges.source.device)
