"""Input graphs as edge slots: the input of a model, and the graphs of grids and sequences."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.errors import GraphError


def check_tensors(
    where: str,
    given: Mapping[str, Any],
    home: tuple[str, torch.device] | None = None,
    *,
    whole: Collection[str] = (),
    numbers: torch.dtype | None = None,
    look: bool = True,
) -> None:
    """Raise GraphError unless all are ordinary tensors on the device of `home` (name, device).

    Tensors named in `whole` must hold whole numbers (not booleans). If `numbers` is a dtype, all
    must be real and, with `look`, finite in that dtype.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            kind = "None" if value is None else type(value).__name__
            hint = "" if value is None else f"; write torch.as_tensor({name})"
            raise GraphError(f"{where}: {name} should be a tensor, got {kind}{hint}.")
        if value.is_nested:
            raise GraphError(
                f"{where}: {name} is a nested tensor; write torch.cat({name}.unbind()), with a "
                f"batch vector that counts the graphs."
            )
        if value.layout != torch.strided:
            hint = f"write {name}.to_dense()"
            if name == "edge_index":  # an adjacency matrix; PyG has it transposed
                hint = (
                    "write adj.to_sparse_coo().coalesce().indices(), with .flip(0) after it "
                    "for PyG's adj_t"
                )
            raise GraphError(f"{where}: {name} is a sparse tensor ({value.layout}); {hint}.")
        if value.is_quantized:
            raise GraphError(f"{where}: {name} is quantized; write {name}.dequantize().")
        if home is not None and value.device != home[1]:
            raise GraphError(
                f"{where}: {home[0]} is on {home[1]}, {name} on {value.device}; move them to one "
                f"device."
            )
        other = value.is_floating_point() or value.is_complex() or value.dtype == torch.bool
        if name in whole and other:
            raise GraphError(f"{where}: {name} should hold whole numbers, got {value.dtype}.")
        if numbers is not None and value.is_complex():
            raise GraphError(
                f"{where}: {name} holds complex numbers; write torch.view_as_real(...)."
            )
        if numbers is not None and look and not bool(torch.isfinite(value.to(numbers)).all()):
            place = tuple((~torch.isfinite(value.to(numbers))).nonzero()[0].tolist())
            lost = bool(torch.isfinite(value[place]))  # by the conversion
            what = f"too large for {numbers}" if lost else "not finite"
            raise GraphError(f"{where}: {name} is {what} at {place}.")


def check_edges(
    where: str,
    edge_index: Tensor,
    num_nodes: int,
    types: Tensor | None = None,
    num_types: int | None = None,
    features: Tensor | None = None,
    batch: Tensor | None = None,
) -> int:
    """Check shapes, devices, node ids and types of the edges, and that no edge leads from one
    graph of the batch into another. Returns the number of edge types."""
    check_tensors(where, {"edge_index": edge_index})
    shape = tuple(edge_index.shape)
    if len(shape) != 2 or shape[0] != 2:
        hint = ""
        if shape == (num_nodes, num_nodes):
            hint = "; of an adjacency matrix write adj.nonzero().t()"
        elif shape[1:] == (2,):
            hint = "; write edge_index.t()"
        raise GraphError(f"{where}: edge_index should be (2, e), got {shape}{hint}.")
    check_tensors(where, {"edge_index": edge_index}, whole={"edge_index"})
    ours = where == "graph_from_edge_index"  # the encoder and PyG's data have other names
    names = ("edge_types", "edge_features") if ours else ("edge_type", "edge_attr")
    for name, given, wanted in ((names[0], types, "(e,)"), (names[1], features, "(e, f)")):
        if given is None:
            continue
        check_tensors(where, {name: given}, ("edge_index", edge_index.device), whole={names[0]})
        if given.ndim != len(wanted.split()):
            raise GraphError(f"{where}: {name} should be {wanted}, got {tuple(given.shape)}.")
        if len(given) != shape[1]:
            raise GraphError(f"{where}: {name} has {len(given)} entries for {shape[1]} edges.")
    edge_index = edge_index.long()  # torch has no minimum of some unsigned numbers
    lowest, highest = map(int, edge_index.aminmax()) if shape[1] else (0, 0)
    if not 0 <= lowest <= highest < num_nodes:
        bad = int(((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()[0])
        raise GraphError(
            f"{where}: node ids should be 0 to {num_nodes - 1}, got {lowest} to {highest} (first "
            f"at edge {bad}: {edge_index[:, bad].tolist()})."
        )
    if batch is not None:
        check_apart(where, edge_index, batch)
    if types is None or not shape[1]:
        return num_types or 1
    lowest, highest = map(int, types.long().aminmax())
    num_types = highest + 1 if num_types is None else num_types
    if lowest < 0 or highest >= num_types:
        raise GraphError(
            f"{where}: edge types should be 0 to {num_types - 1}, got {lowest} to {highest}."
        )
    return num_types


def check_apart(where: str, edge_index: Tensor, batch: Tensor) -> None:
    """Raise GraphError if an edge leads from one graph of the batch into another."""
    source, target = batch[edge_index.long()]
    if bool((source != target).any()):
        bad = int((source != target).nonzero()[0])
        raise GraphError(
            f"{where}: edge {bad} ({edge_index[:, bad].tolist()}) leads from graph "
            f"{int(source[bad])} to graph {int(target[bad])}."
        )


def check_positions(where: str, positions: Tensor | None, num_nodes: int, *, look: bool) -> None:
    """Positions (n, p) for the overflow rule `nearest`; with `look`, they must be finite."""
    name = "positions" if where == "graph_from_edge_index" else "pos"
    if positions is not None:
        check_tensors(where, {name: positions}, numbers=torch.float64, look=look)
    if positions is None or positions.ndim != 2 or len(positions) != num_nodes:
        got = "none" if positions is None else f"{tuple(positions.shape)}"
        raise GraphError(
            f"{where}: overflow='nearest' needs {name} (n, p) of all {num_nodes} nodes, got {got}."
        )


# Categories of the grid's edges; `empty` is last, so that other graphs may count from 0.
GRID_CATEGORIES = ("self", "up", "down", "left", "right", "empty")


@dataclass(frozen=True)
class InputGraph:
    """Hard edges in slots. `targets` of -1 are empty slots; their category is `num_categories - 1`.

    `features` may replace categories if edges have numeric features.

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
        """Apply a function to every tensor of the graph, to select graphs or change the device."""
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
        """Raise GraphError for empty graphs, wrong shapes, and ids or categories out of range.

        It reads values, so call it once per graph, outside of layers.
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

    The last slot is empty if there is more than one: an empty edge points evenly at the whole past.
    Without it, no edge reaches farther back than k positions, and content-based attention is
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
