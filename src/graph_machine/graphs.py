"""Input graphs as edge slots: grids, any `edge_index`, sequences (SPEC section 2, input layers)."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import GraphError, did_you_mean

Overflow = Literal["error", "first", "random"]

# Categories of the grid's edges; `empty` is last, so that other graphs may count from 0.
GRID_CATEGORIES = ("self", "up", "down", "left", "right", "empty")


@dataclass(frozen=True)
class InputGraph:
    """Hard edges in slots. `targets` of -1 are empty slots; their category is `num_categories - 1`.

    `features` may take the place of categories where edges come with numbers of their own.
    """

    targets: Int[Tensor, "*b n k"]
    categories: Int[Tensor, "*b n k"]
    num_categories: int
    features: Float[Tensor, "*b n k f"] | None = None

    @property
    def num_edges(self) -> int:
        return self.targets.shape[-1]

    def check(self) -> "InputGraph":
        """Raise one clear error for empty graphs and for ids or categories out of range.

        Looks at values, so it belongs at the boundary, once per graph.
        """
        *_, n, k = self.targets.shape
        if self.targets.numel() == 0:
            raise GraphError(f"InputGraph: the graph is empty: targets are (n, k) = {(n, k)}.")
        ranges = (
            ("targets", self.targets, -1, n),
            ("categories", self.categories, 0, self.num_categories),
        )
        for name, ids, low, end in ranges:
            if not low <= int(ids.min()) <= int(ids.max()) < end:
                raise GraphError(
                    f"InputGraph: {name} should be {low} to {end - 1}, "
                    f"got {int(ids.min())} to {int(ids.max())}."
                )
        return self


def _fill(rows: list[list[tuple[int, int]]], num_edges: int, empty: int) -> tuple[Tensor, Tensor]:
    targets = torch.full((len(rows), num_edges), -1, dtype=torch.long)
    categories = torch.full((len(rows), num_edges), empty, dtype=torch.long)
    for node, row in enumerate(rows):
        for slot, (target, category) in enumerate(row):
            targets[node, slot], categories[node, slot] = target, category
    return targets, categories


def grid_graph(rows: int, cols: int, num_edges: int) -> InputGraph:
    """Self, up, down, left, right, then empty slots (paper, section 3.1)."""
    if num_edges < 5:
        raise GraphError(f"grid_graph: a grid needs k >= 5 edge slots, got {num_edges}.")
    if rows < 1 or cols < 1:
        raise GraphError(f"grid_graph: the grid is empty ({rows} x {cols}).")
    slots = []
    for row in range(rows):
        for col in range(cols):
            steps = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
            cells = [(row + r, col + c) for r, c in steps]
            inside = [
                (r * cols + c, category)
                for category, (r, c) in enumerate(cells)
                if 0 <= r < rows and 0 <= c < cols
            ]
            slots.append(inside)
    targets, categories = _fill(slots, num_edges, empty=len(GRID_CATEGORIES) - 1)
    return InputGraph(targets, categories, len(GRID_CATEGORIES))


def sequence_graph(length: int, num_edges: int) -> InputGraph:
    """Self, then the nearest past positions; category = distance. Use it with `causal=True`."""
    if num_edges < 1:
        raise GraphError(f"sequence_graph: needs k >= 1 edge slots, got {num_edges}.")
    if length < 1:
        raise GraphError(f"sequence_graph: the sequence is empty (length {length}).")
    distances = torch.arange(num_edges).expand(length, num_edges)
    targets = torch.arange(length)[:, None] - distances
    empty = targets < 0
    return InputGraph(
        targets.masked_fill(empty, -1), distances.masked_fill(empty, num_edges), num_edges + 1
    )


def graph_from_edge_index(
    edge_index: Int[Tensor, "2 e"],
    *,
    num_nodes: int,
    num_edges: int,
    edge_types: Int[Tensor, " e"] | None = None,
    num_types: int | None = None,
    edge_features: Float[Tensor, "e f"] | None = None,
    overflow: Overflow = "error",
    generator: torch.Generator | None = None,
) -> InputGraph:
    """Edges `source -> target` into slots: the self edge first, then the edges in their order.

    Categories: the edge's type (0 when there are none), then `self`, then `empty`. A node with more
    than k - 1 neighbours is an error, unless `overflow` says to keep the first or random ones.
    """
    _check_edges(edge_index, num_nodes, num_edges, overflow)
    source, target = edge_index.cpu()
    for name, given in (("edge_types", edge_types), ("edge_features", edge_features)):
        if given is not None and len(given) != len(source):
            raise GraphError(
                f"graph_from_edge_index: {name} has {len(given)} entries for {len(source)} edges."
            )
    types = torch.zeros_like(source) if edge_types is None else edge_types.cpu()
    num_types = _count_types(types, num_types)
    order = _slot_order(source, overflow, generator)
    source, target, types = source[order], target[order], types[order]
    degree = torch.bincount(source, minlength=num_nodes)
    if overflow == "error" and int(degree.max()) > num_edges - 1:
        node = int(degree.argmax())
        raise GraphError(
            f"graph_from_edge_index: node {node} has {int(degree[node])} neighbours, but k = "
            f"{num_edges} slots hold the self edge and {num_edges - 1} more; raise num_edges or "
            f"choose overflow='first' or 'random'."
        )
    # Slot of each edge: its rank among the edges of its source, after the self edge.
    first = degree.cumsum(0) - degree
    slot = torch.arange(len(source)) - first[source] + 1
    kept = slot < num_edges
    source, target, types, slot = source[kept], target[kept], types[kept], slot[kept]
    targets = torch.full((num_nodes, num_edges), -1, dtype=torch.long)
    categories = torch.full((num_nodes, num_edges), num_types + 1, dtype=torch.long)
    targets[:, 0], categories[:, 0] = torch.arange(num_nodes), num_types
    targets[source, slot], categories[source, slot] = target, types
    features = None
    if edge_features is not None:
        features = edge_features.new_zeros(num_nodes, num_edges, edge_features.shape[-1])
        features[source, slot] = edge_features[order][kept]
    return InputGraph(targets, categories, num_types + 2, features)


def _check_edges(edge_index: Tensor, num_nodes: int, num_edges: int, overflow: str) -> None:
    if overflow not in get_args(Overflow):
        raise GraphError(
            f"Unknown overflow rule '{overflow}'.{did_you_mean(overflow, get_args(Overflow))} "
            f"Known: {', '.join(get_args(Overflow))}."
        )
    if num_nodes < 1:
        raise GraphError(f"graph_from_edge_index: the graph is empty (num_nodes = {num_nodes}).")
    if num_edges < 1:
        raise GraphError(f"graph_from_edge_index: needs k >= 1 edge slots, got {num_edges}.")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise GraphError(
            f"graph_from_edge_index: edge_index should be (2, e), got {tuple(edge_index.shape)}."
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise GraphError(
            f"graph_from_edge_index: node ids should be 0 to {num_nodes - 1}, "
            f"got {int(edge_index.min())} to {int(edge_index.max())}."
        )


def _count_types(types: Tensor, num_types: int | None) -> int:
    lowest, highest = (int(types.min()), int(types.max())) if len(types) else (0, 0)
    num_types = highest + 1 if num_types is None else num_types
    if lowest < 0 or highest >= num_types:
        raise GraphError(
            f"graph_from_edge_index: edge types should be 0 to {num_types - 1}, "
            f"got {lowest} to {highest}."
        )
    return num_types


def _slot_order(source: Tensor, overflow: str, generator: torch.Generator | None) -> Tensor:
    """Edges grouped by source; within a source in their own order, or shuffled."""
    if overflow != "random":
        return source.argsort(stable=True)
    shuffled = torch.randperm(len(source), generator=generator)
    return shuffled[source[shuffled].argsort(stable=True)]


def batch_graphs(graphs: list[InputGraph]) -> tuple[InputGraph, Tensor]:
    """Graphs of different sizes as one padded batch, and the node mask (b, n) that goes with it."""
    if not graphs:
        raise GraphError("batch_graphs: no graphs were given.")
    kinds = {
        (g.num_edges, g.num_categories, None if g.features is None else g.features.shape[-1])
        for g in graphs
    }
    if len(kinds) > 1:
        raise GraphError("batch_graphs: the graphs differ in slots, categories or features.")
    sizes = [g.check().targets.shape[0] for g in graphs]
    first, n = graphs[0], max(sizes)
    shape = (len(graphs), n, first.num_edges)
    targets = torch.full(shape, -1, dtype=torch.long)
    categories = torch.full(shape, first.num_categories - 1, dtype=torch.long)
    features = None
    if first.features is not None:
        features = first.features.new_zeros(*shape, first.features.shape[-1])
    mask = torch.zeros(len(graphs), n, dtype=torch.bool)
    for i, (graph, size) in enumerate(zip(graphs, sizes)):
        targets[i, :size], categories[i, :size] = graph.targets, graph.categories
        mask[i, :size] = True
        if features is not None and graph.features is not None:
            features[i, :size] = graph.features
    return InputGraph(targets, categories, first.num_categories, features), mask
