"""Input graphs as edge slots: what a model is given, and the graphs of grids and sequences."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.errors import GraphError
from graph_machine.graphs.checks import check_tensors

# Categories of the grid's edges; `empty` is last, so that other graphs may count from 0.
GRID_CATEGORIES = ("self", "up", "down", "left", "right", "empty")


@dataclass(frozen=True)
class InputGraph:
    """Hard edges in slots. `targets` of -1 are empty slots; their category is `num_categories - 1`.

    `features` may replace categories where edges have their own numbers.

    >>> ring = InputGraph(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 0], [1, 0]]), 3)  # n k
    >>> ring.check().num_edges
    2
    """

    targets: Int[Tensor, "*b n k"]
    categories: Int[Tensor, "*b n k"]
    num_categories: int
    features: Float[Tensor, "*b n k f"] | None = None

    @property
    def num_edges(self) -> int:
        """k, the number of slots of each node."""
        return self.targets.shape[-1]

    def apply(self, change: Callable[[Tensor], Tensor]) -> "InputGraph":
        """The same change to every tensor of the graph: a cut of the batch, another device."""
        return replace(
            self,
            targets=change(self.targets),
            categories=change(self.categories),
            features=None if self.features is None else change(self.features),
        )

    def to(self, device: torch.device | str) -> "InputGraph":
        """The graph on another device."""
        return self.apply(lambda tensor: tensor.to(device))

    def __getitem__(self, rows: int | slice | list[int] | Tensor) -> "InputGraph":
        """Some graphs of a batch; a graph without a batch axis belongs to every example."""
        return self if self.targets.ndim == 2 else self.apply(lambda tensor: tensor[rows])

    def expand(self, batch: int) -> "InputGraph":
        """With a batch axis: b n k."""
        shape = (batch, *self.targets.shape[-2:])
        features = self.features
        return replace(
            self,
            targets=self.targets.expand(shape),
            categories=self.categories.expand(shape),
            features=None if features is None else features.expand(*shape, features.shape[-1]),
        )

    def with_slots(self, num_edges: int) -> "InputGraph":
        """With empty slots added up to k = `num_edges`."""
        more = num_edges - self.num_edges
        if more < 0:
            raise GraphError(
                f"InputGraph: a graph of k = {self.num_edges} slots does not fit into {num_edges}."
            )
        features = self.features
        return InputGraph(
            nn.functional.pad(self.targets, (0, more), value=-1),
            nn.functional.pad(self.categories, (0, more), value=self.num_categories - 1),
            self.num_categories,
            None if features is None else nn.functional.pad(features, (0, 0, 0, more)),
        )

    def without(self, gone: Bool[Tensor, "*b n k"]) -> "InputGraph":
        """With some slots made empty."""
        return replace(
            self,
            targets=self.targets.masked_fill(gone, -1),
            categories=self.categories.masked_fill(gone, self.num_categories - 1),
            features=None if self.features is None else self.features * ~gone.unsqueeze(-1),
        )

    def check(self) -> "InputGraph":
        """Raise one clear error for empty graphs, other shapes, and ids or categories out of range.

        Looks at values, so it belongs at the boundary, once per graph.
        """
        shape = tuple(self.targets.shape)
        if len(shape) not in (2, 3):
            raise GraphError(f"InputGraph: targets should be (n, k) or (b, n, k), got {shape}.")
        *_, n, k = shape
        if self.targets.numel() == 0:
            raise GraphError(f"InputGraph: the graph is empty: targets are (n, k) = {(n, k)}.")
        slots = shape if self.features is None else self.features.shape[:-1]
        for name, other in (("categories", self.categories.shape), ("features", slots)):
            if tuple(other) != shape:
                raise GraphError(
                    f"InputGraph: {name} should be for slots {shape} as targets are, "
                    f"got {tuple(other)}."
                )
        ranges = (
            ("targets", self.targets, -1, n),
            ("categories", self.categories, 0, self.num_categories),
        )
        for name, ids, low, end in ranges:
            check_tensors("InputGraph", {name: ids}, whole={name})
            if not low <= int(ids.min()) <= int(ids.max()) < end:
                raise GraphError(
                    f"InputGraph: {name} should be {low} to {end - 1}, "
                    f"got {int(ids.min())} to {int(ids.max())}."
                )
        return self


def grid_graph(rows: int, cols: int, num_edges: int) -> InputGraph:
    """Self, up, down, left, right, then empty slots (paper, section 3.1).

    >>> grid_graph(3, 3, num_edges=8).targets[0]  # the corner: itself, down, right, empty slots
    tensor([ 0,  3,  1, -1, -1, -1, -1, -1])
    """
    if num_edges < 5:
        raise GraphError(f"grid_graph: a grid needs k >= 5 edge slots, got {num_edges}.")
    if rows < 1 or cols < 1:
        raise GraphError(f"grid_graph: the grid is empty ({rows} x {cols}).")
    steps = torch.tensor([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
    near = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).unsqueeze(1) + steps
    inside = ((near >= 0) & (near < torch.tensor([rows, cols]))).all(dim=-1)  # n 5
    order = (~inside).long().argsort(dim=1, stable=True)  # neighbours that exist come first
    targets = torch.where(inside, near[..., 0] * cols + near[..., 1], -1).gather(1, order)
    categories = torch.where(inside, torch.arange(5), 5).gather(1, order)
    return InputGraph(targets, categories, len(GRID_CATEGORIES)).with_slots(num_edges)


def sequence_graph(length: int, num_edges: int, *, empty_slot: bool = True) -> InputGraph:
    """Self, then the nearest past positions; category = distance. Use it with `causal=True`.

    The last slot is empty, as long as another one is left: an empty edge points evenly at the whole
    past. Without it no edge reaches farther back than k positions, and attention by content is
    limited to those. `empty_slot=False` fills all slots, for models that have an empty edge anyway.

    >>> sequence_graph(4, num_edges=3).targets  # n k: itself, one back, empty
    tensor([[ 0, -1, -1],
            [ 1,  0, -1],
            [ 2,  1, -1],
            [ 3,  2, -1]])
    """
    if num_edges < 1:
        raise GraphError(f"sequence_graph: needs k >= 1 edge slots, got {num_edges}.")
    if length < 1:
        raise GraphError(f"sequence_graph: the sequence is empty (length {length}).")
    distances = torch.arange(num_edges).expand(length, num_edges)
    targets = torch.arange(length)[:, None] - distances
    empty = targets < 0
    if empty_slot and num_edges > 1:
        empty[:, -1] = True
    return InputGraph(
        targets.masked_fill(empty, -1), distances.masked_fill(empty, num_edges), num_edges + 1
    )


# Graphs go into compiled and exported models.
torch.export.register_dataclass(InputGraph, serialized_type_name="graph_machine.InputGraph")
