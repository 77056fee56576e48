"""Tensors as a user gives them, checked: a mistake is one clear line that begins with `where`."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

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
    """Everything given is an ordinary tensor, on the device of `home`, a name and its device.

    Those named in `whole` hold whole numbers, which True and False are not. With a dtype for
    `numbers`, all are real, and after a `look` at them finite in that dtype.
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
                    "write adj.to_sparse_coo().coalesce().indices(), and .flip(0) behind it "
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
    """The number of edge types, once shapes, devices, node ids and types of the edges are right,
    and no edge leads from one graph of the batch into another."""
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
    if shape[1] and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        bad = int(((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()[0])
        raise GraphError(
            f"{where}: node ids should be 0 to {num_nodes - 1}, got {int(edge_index.min())} to "
            f"{int(edge_index.max())} (first at edge {bad}: {edge_index[:, bad].tolist()})."
        )
    if batch is not None:
        check_apart(where, edge_index, batch)
    if types is None or not shape[1]:
        return num_types or 1
    lowest, highest = int(types.long().min()), int(types.long().max())
    num_types = highest + 1 if num_types is None else num_types
    if lowest < 0 or highest >= num_types:
        raise GraphError(
            f"{where}: edge types should be 0 to {num_types - 1}, got {lowest} to {highest}."
        )
    return num_types


def check_apart(where: str, edge_index: Tensor, batch: Tensor) -> None:
    """No edge leads from one graph of a batch into another."""
    source, target = batch[edge_index.long()]
    if bool((source != target).any()):
        bad = int((source != target).nonzero()[0])
        raise GraphError(
            f"{where}: edge {bad} ({edge_index[:, bad].tolist()}) leads from graph "
            f"{int(source[bad])} to graph {int(target[bad])}."
        )


def check_positions(where: str, positions: Tensor | None, num_nodes: int, *, look: bool) -> None:
    """Positions (n, p), as the overflow rule `nearest` needs them; with a `look`, finite ones."""
    name = "positions" if where == "graph_from_edge_index" else "pos"
    if positions is not None:
        check_tensors(where, {name: positions}, numbers=torch.float64, look=look)
    if positions is None or positions.ndim != 2 or len(positions) != num_nodes:
        got = "none" if positions is None else f"{tuple(positions.shape)}"
        raise GraphError(
            f"{where}: overflow='nearest' needs {name} (n, p) of all {num_nodes} nodes, got {got}."
        )
