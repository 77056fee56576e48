"""What `predict` is given beside tokens, checked once per call: each mistake is one clear line."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graph_machine.errors import DataError, GraphError, ShapeError
from graph_machine.graphs import InputGraph

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine


def as_tensor(name: str, given: Any) -> Tensor | None:
    """A tensor, of numpy's arrays too."""
    if isinstance(given, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(given))
    if given is None or isinstance(given, Tensor):
        return given
    raise ShapeError(f"predict: {name} should be a tensor, got {type(given).__name__}.")


def read_features(model: "GraphMachine", name: str, features: Tensor) -> Tensor:
    """Features in the model's own dtype; float64 from numpy is as welcome as float32."""
    own = features.to(next(model.parameters()).dtype)
    if not bool(torch.isfinite(own).all()):
        where = tuple((~torch.isfinite(own)).nonzero()[0].tolist())
        raise DataError(f"predict: {name} are not finite at {where} as {own.dtype}.")
    return own


def read_mask(node_mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """A mask (b, n) in which every example has nodes."""
    if node_mask.dtype != torch.bool or node_mask.shape != shape:
        raise ShapeError(
            f"predict: node_mask should be bool (b, n) = {shape}, got {node_mask.dtype} "
            f"{tuple(node_mask.shape)}."
        )
    empty = (~node_mask.any(dim=1)).nonzero()
    if len(empty):
        raise DataError(f"predict: node_mask leaves no node of example {int(empty[0])}.")
    return node_mask


def read_graph(model: "GraphMachine", graph: InputGraph, shape: tuple[int, int]) -> InputGraph:
    """A graph of these nodes, its own for every example or one for all."""
    if not isinstance(graph, InputGraph):
        raise GraphError(f"predict: graph should be an InputGraph, got {type(graph).__name__}.")
    b, n = shape
    *batch, nodes, _ = graph.check().targets.shape
    if nodes != n or batch not in ([], [1], [b]):
        raise ShapeError(
            f"predict: the graph should be for (b, n) = {shape}, got "
            f"{tuple(graph.targets.shape)} (b, n, k)."
        )
    if graph.features is not None:
        features = read_features(model, "the graph's edge features", graph.features)
        graph = InputGraph(graph.targets, graph.categories, graph.num_categories, features)
    return graph.expand(b) if batch == [1] else graph
