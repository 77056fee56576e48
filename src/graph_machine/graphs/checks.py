"""Edges as a user gives them, checked: each mistake is one clear line that begins with `where`."""

from typing import Any

import torch
from torch import Tensor

from graph_machine.errors import GraphError


def check_tensors(where: str, **given: Any) -> None:
    """Everything given is an ordinary tensor; None is not."""
    for name, value in given.items():
        if isinstance(value, Tensor):
            if value.is_nested:
                raise GraphError(
                    f"{where}: {name} is a nested tensor; write torch.cat({name}.unbind()), with a "
                    f"batch vector that counts the graphs."
                )
            if value.layout != torch.strided:
                hint = f"write {name}.to_dense()"
                if name == "edge_index":  # an adjacency matrix; PyG has it transposed
                    hint = (
                        "write adj.to_sparse_coo().coalesce().indices(), and .flip(0) behind it "
                        "for PyG's adj_t"
                    )
                raise GraphError(f"{where}: {name} is a sparse tensor ({value.layout}); {hint}.")
            if value.is_quantized:
                raise GraphError(f"{where}: {name} is quantized; write {name}.dequantize().")
            continue
        kind = "None" if value is None else type(value).__name__
        hint = "" if value is None else f"; write torch.as_tensor({name})"
        raise GraphError(f"{where}: {name} should be a tensor, got {kind}{hint}.")


def check_whole(where: str, name: str, given: Tensor) -> None:
    """The tensor holds whole numbers; True and False are none."""
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise GraphError(f"{where}: {name} should hold whole numbers, got {given.dtype}.")


def argument(where: str, name: str) -> str:
    """What a user of `where` calls it: the encoder and PyG's data have names of their own."""
    theirs = {"edge_types": "edge_type", "edge_features": "edge_attr", "positions": "pos"}
    return name if where == "graph_from_edge_index" else theirs[name]


def check_edges(
    where: str,
    edge_index: Tensor,
    edge_types: Tensor | None,
    edge_features: Tensor | None,
    num_nodes: int,
) -> None:
    """Shapes, kinds, devices and node ids of edges; types and features may be missing."""
    check_tensors(where, edge_index=edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        shape, hint = tuple(edge_index.shape), ""
        if shape == (num_nodes, num_nodes):
            hint = "; of an adjacency matrix write adj.nonzero().t()"
        elif shape[1:] == (2,):
            hint = "; write edge_index.t()"
        raise GraphError(f"{where}: edge_index should be (2, e), got {shape}{hint}.")
    check_whole(where, "edge_index", edge_index)
    edge_index = edge_index.long()  # torch has no minimum of some unsigned numbers
    count = edge_index.shape[1]
    for name, given, axes in (("edge_types", edge_types, 1), ("edge_features", edge_features, 2)):
        if given is not None:
            _check_per_edge(where, argument(where, name), given, edge_index, axes)
    if edge_types is not None:
        check_whole(where, argument(where, "edge_types"), edge_types)
    if count and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        bad = int(((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()[0])
        raise GraphError(
            f"{where}: node ids should be 0 to {num_nodes - 1}, got {int(edge_index.min())} to "
            f"{int(edge_index.max())} (first at edge {bad}: {edge_index[:, bad].tolist()})."
        )


def _check_per_edge(where: str, name: str, given: Tensor, edge_index: Tensor, axes: int) -> None:
    check_tensors(where, **{name: given})
    if given.device != edge_index.device:
        raise GraphError(
            f"{where}: edge_index is on {edge_index.device}, {name} on {given.device}; "
            f"move them to one device."
        )
    if given.ndim != axes:
        shape = "(e,)" if axes == 1 else "(e, f)"
        raise GraphError(f"{where}: {name} should be {shape}, got {tuple(given.shape)}.")
    if len(given) != edge_index.shape[1]:
        raise GraphError(
            f"{where}: {name} has {len(given)} entries for {edge_index.shape[1]} edges."
        )


def check_finite(where: str, what: str, rows: Tensor) -> None:
    """Rows (e, f) or (n, p) without NaN and infinity; `what` is said with the number of the row."""
    finite = torch.isfinite(rows)
    if not bool(finite.all()):
        bad = int((~finite).any(dim=1).nonzero()[0])
        raise GraphError(f"{where}: the {what} {bad} are not finite.")


def check_positions(where: str, positions: Tensor | None, num_nodes: int) -> Tensor:
    """Positions (n, p), as the overflow rule `nearest` needs them."""
    name = argument(where, "positions")
    if positions is not None:
        check_tensors(where, **{name: positions})
    if positions is None or positions.ndim != 2 or len(positions) != num_nodes:
        got = "none" if positions is None else f"{tuple(positions.shape)}"
        raise GraphError(
            f"{where}: overflow='nearest' needs {name} (n, p) of all {num_nodes} nodes, got {got}."
        )
    return positions


def check_apart(where: str, edge_index: Tensor, batch: Tensor) -> None:
    """No edge leads from one graph of a batch into another."""
    source, target = batch[edge_index[0].long()], batch[edge_index[1].long()]
    if bool((source != target).any()):
        bad = int((source != target).nonzero()[0])
        raise GraphError(
            f"{where}: edge {bad} ({edge_index[:, bad].tolist()}) leads from graph "
            f"{int(source[bad])} to graph {int(target[bad])}."
        )
