"""Any `edge_index` as edge slots: direction, self-loops, duplicates, and more edges than slots."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import GraphError, did_you_mean
from graph_machine.graphs.slots import InputGraph, check_edges, check_positions, check_tensors

Overflow = Literal["error", "first", "sample", "nearest"]
Direction = Literal["out", "in", "both", "undirected"]


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

    `direction` says which node's slots an edge goes into: its source's (`out`), its target's (`in`,
    as messages flow in PyG), both nodes' with separate types for the way back (`both`), or both
    nodes' with the same type (`undirected`). A node's first self-loop gives its type and features
    to the self edge; it has no way back. An edge that is listed twice with the same type counts
    once. If edges have features, it is a parallel edge instead, and so is a second self-loop.

    Categories: the edge's type (0 without types), then `self`, then `empty`.

    `num_edges` is k. None means as many as the largest degree needs, for a model that takes given
    edges as a set (`given_edges=always`). With a k, a node with more than k - 1 edges raises an
    error, unless `overflow` chooses the edges to keep: the `first` ones, a random `sample`, those
    to the `nearest` nodes by their `positions`, or a `fixed` choice, which is always the same and
    spread over the node's list. Kept edges stay in their order.

    `check=False` skips the check that features and positions are finite.

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
    num_types = check_edges(where, edge_index, num_nodes, edge_types, num_types, edge_features)
    if overflow == "nearest":
        check_positions(where, positions, num_nodes, look=check)
    if edge_features is not None:
        given = {"edge_features": edge_features}
        check_tensors(where, given, numbers=edge_features.dtype, look=check)
    return sort_edges(
        edge_index,
        edge_types,
        edge_features,
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_types=num_types,
        direction=direction,
        overflow=overflow,
        positions=positions,
        generator=generator,
        fixed=fixed,
        where=where,
    )


def sort_edges(
    edge_index: Tensor,
    edge_types: Tensor | None,
    features: Tensor | None,
    *,
    num_nodes: int,
    num_edges: int | None,
    num_types: int,
    direction: Direction,
    overflow: Overflow,
    positions: Tensor | None,
    generator: torch.Generator | None,
    fixed: bool,
    where: str,
) -> InputGraph:
    """Checked edges into slots, as in `graph_from_edge_index`."""
    node, target = edge_index.long()
    types = torch.zeros_like(node) if edge_types is None else edge_types.long()
    if direction != "out":
        node, target, types, features = _directed(
            node, target, types, features, num_nodes, num_types, direction
        )
        num_types = 2 * num_types if direction == "both" else num_types
    kept = torch.ones_like(node, dtype=torch.bool)
    if features is None:  # an edge that is listed twice counts once
        keys, order = ((node * num_nodes + target) * num_types + types).sort(stable=True)
        kept.scatter_(0, order[1:], keys[1:] != keys[:-1])
    # The first self-loop of a node gives its type and features to the self edge.
    loops = (node == target).nonzero().squeeze(-1)
    first = loops.new_full((num_nodes,), len(node)).scatter_reduce(0, node[loops], loops, "amin")
    own = (first < len(node)).nonzero().squeeze(-1)  # the nodes that have one
    loop = first[own]
    rest = kept.index_fill(0, loop, False).nonzero().squeeze(-1)
    if num_edges is None and edge_types is None:
        # Which of several self-loops comes first does not matter then.
        types = types.index_fill(0, loops, num_types)
    source = node[rest]
    order = source.argsort(stable=True)
    degree = torch.bincount(source, minlength=num_nodes)
    most = int(degree.max())
    num_edges = 1 + most if num_edges is None else num_edges
    if most > num_edges - 1:
        if overflow == "error":
            number = int(degree.argmax())
            raise GraphError(
                f"{where}: node {number} has {most} edges, but k = {num_edges} slots hold the self "
                f"edge and {num_edges - 1} more; raise num_edges or choose overflow='sample', "
                f"'nearest' or 'first'."
            )
        ends = (source, target[rest])
        wanted = _wanted(*ends, order, degree, overflow, positions, generator, fixed=fixed)
        order = order[wanted < num_edges - 1]
        degree = degree.clamp_max(num_edges - 1)
    rest, source = rest[order], source[order]  # the edges of node 0, of node 1, ...
    slot = torch.arange(1, len(rest) + 1, device=node.device) - (degree.cumsum(0) - degree)[source]
    targets = torch.full((num_nodes, num_edges), -1, dtype=torch.long, device=node.device)
    categories = torch.full_like(targets, num_types + 1)
    targets[:, 0], categories[:, 0] = torch.arange(num_nodes, device=node.device), num_types
    if edge_types is not None:
        categories[own, 0] = types[loop]
    targets[source, slot], categories[source, slot] = target[rest], types[rest]
    if features is not None:
        given, features = features, features.new_zeros(*targets.shape, features.shape[-1])
        features[source, slot], features[own, 0] = given[rest], given[loop]
    return InputGraph(targets, categories, num_types + 2, features)


def _wanted(
    node: Tensor,
    target: Tensor,
    order: Tensor,
    degree: Tensor,
    overflow: Overflow,
    positions: Tensor | None,
    generator: torch.Generator | None,
    *,
    fixed: bool,
) -> Tensor:
    """For edges in `order`, which sorts them by node: the rank among the edges of its node, from 0.

    Chance or distance affect only the choice. Slots are filled in the edges' own order.
    """
    node, target = node[order], target[order]
    ranks = torch.arange(len(node), device=node.device) - (degree.cumsum(0) - degree)[node]
    if overflow == "first":
        return ranks
    if overflow == "nearest":
        assert positions is not None
        # Whole numbers would wrap round or overflow, and so would half precision.
        exact = torch.promote_types(positions.dtype, torch.float32)
        places = positions.to(exact if positions.is_floating_point() else torch.float64)
        scores = (places[node] - places[target]).square().sum(dim=-1)
    elif fixed and generator is None:
        # Golden-ratio steps through a node's list: the same at any time and in any batch.
        scores = ranks * 2_654_435_769 % 2**32
    else:
        # Drawn where the generator lives, so that a seed means the same on every device.
        drawn = torch.randperm(len(node), generator=generator).to(node.device)
        scores = drawn.argsort()[order]
    best = scores.argsort(stable=True)
    best = best[node[best].argsort(stable=True)]
    return torch.empty_like(ranks).scatter_(0, best, ranks)


def _directed(
    source: Tensor,
    target: Tensor,
    types: Tensor,
    features: Tensor | None,
    num_nodes: int,
    num_types: int,
    direction: Direction,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The node that holds each edge in a slot, its target, type and features."""
    if direction == "in":
        return target, source, types, features
    if direction == "both":
        back = source != target  # a self-loop is its own way back
        more = types[back] + num_types
    else:
        # PyG lists an undirected edge both ways: then the way back is there already.
        there = (source * num_nodes + target) * num_types + types
        back = ~torch.isin((target * num_nodes + source) * num_types + types, there)
        more = types[back]
    return (
        torch.cat([source, target[back]]),
        torch.cat([target, source[back]]),
        torch.cat([types, more]),
        None if features is None else torch.cat([features, features[back]]),
    )


def check_choices(direction: str, overflow: str) -> None:
    """Raise GraphError for an unknown direction or overflow rule."""
    rules = (("direction", direction, Direction), ("overflow rule", overflow, Overflow))
    for what, given, known in rules:
        options = get_args(known)
        if given not in options:
            raise GraphError(
                f"Unknown {what} '{given}'.{did_you_mean(given, options)} "
                f"Known: {', '.join(options)}."
            )
