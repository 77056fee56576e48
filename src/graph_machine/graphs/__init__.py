"""Input graphs as edge slots, from grids, sequences, any `edge_index`, and PyG batches."""

from graph_machine.graphs.batches import (
    Bucket,
    batch_graphs,
    bucketed,
    buckets,
    graph_sizes,
    pad_rows,
)
from graph_machine.graphs.edge_index import Direction, Overflow, graph_from_edge_index
from graph_machine.graphs.pyg import (
    DenseBatch,
    GraphMachineEdges,
    edge_index_of,
    to_graph_machine,
    to_pyg,
)
from graph_machine.graphs.slots import GRID_CATEGORIES, InputGraph, grid_graph, sequence_graph

__all__ = [
    "GRID_CATEGORIES",
    "Bucket",
    "DenseBatch",
    "Direction",
    "GraphMachineEdges",
    "InputGraph",
    "Overflow",
    "batch_graphs",
    "bucketed",
    "buckets",
    "edge_index_of",
    "graph_from_edge_index",
    "graph_sizes",
    "grid_graph",
    "pad_rows",
    "sequence_graph",
    "to_graph_machine",
    "to_pyg",
]
