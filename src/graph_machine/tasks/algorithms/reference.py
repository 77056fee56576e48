"""The same answers by networkx, from what a model is given: the exact row of every table."""

import math

import networkx as nx
import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graph_machine.tasks.batch import Batch

FAR, UNREACHED = 15, 16


def answers(batch: Batch, algorithm: str) -> Int[Tensor, "b n"]:
    """Answers of `bfs`, `paths` or `components` for every graph of a batch."""
    assert batch.tokens is not None
    assert batch.graph is not None
    solve = {"bfs": _hops, "paths": _edges, "components": _largest}[algorithm]
    found = []
    for number in range(len(batch)):
        one = batch.part(number, number + 1)
        found.append(solve(one, graph_of(one)))
    return torch.from_numpy(np.stack(found))


def nearest_answers(
    one: Batch, algorithm: str, given: Int[np.ndarray, "n"]
) -> Int[np.ndarray, "n"]:
    """Right answers to a single example: where several are right and one of them is given, that.

    Several shortest paths may lead to a node, and several nodes may have the largest key.
    """
    graph = graph_of(one)
    found = answers(one, algorithm)[0].numpy()
    if algorithm == "paths":
        assert one.graph is not None
        targets = one.graph.targets[0].numpy()
        far = nx.single_source_dijkstra_path_length(graph, _source(one))
        for node, distance in far.items():
            last = int(targets[node, given[node]])
            if distance and last in graph[node]:
                # Sums of the same weights in another order differ in their last digits.
                through = far[last] + graph[node][last]["weight"]
                if math.isclose(through, distance, rel_tol=1e-6):
                    found[node] = given[node]
    elif algorithm == "components":
        assert one.features is not None
        keys = one.features[0, :, 0].numpy()
        for part in nx.connected_components(graph):
            for node in part:
                if given[node] in part and keys[given[node]] == keys[found[node]]:
                    found[node] = given[node]
    return found


def graph_of(one: Batch) -> "nx.Graph[int]":
    """The graph of a single example, with its weights."""
    assert one.graph is not None
    targets = one.graph.targets[0]
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(targets)))
    for node, row in enumerate(targets.tolist()):
        for slot, target in enumerate(row[1:], start=1):
            if target >= 0:
                features = one.graph.features
                weight = 1.0 if features is None else float(features[0, node, slot, 0])
                graph.add_edge(node, target, weight=weight)
    return graph


def _source(one: Batch) -> int:
    assert one.tokens is not None
    return int(one.tokens[0].argmax())


def _hops(one: Batch, graph: "nx.Graph[int]") -> np.ndarray:
    found = np.full(len(graph), UNREACHED)
    for node, hops in nx.single_source_shortest_path_length(graph, _source(one)).items():
        found[node] = min(hops, FAR)
    return found


def _edges(one: Batch, graph: "nx.Graph[int]") -> np.ndarray:
    assert one.graph is not None
    before, _ = nx.dijkstra_predecessor_and_distance(graph, _source(one))
    targets = one.graph.targets[0].numpy()
    found = np.zeros(len(graph), dtype=np.int64)
    for node, nodes in before.items():
        if nodes:
            found[node] = int((targets[node] == nodes[0]).argmax())
    return found


def _largest(one: Batch, graph: "nx.Graph[int]") -> np.ndarray:
    assert one.features is not None
    keys = one.features[0, :, 0].numpy()
    found = np.zeros(len(graph), dtype=np.int64)
    for part in nx.connected_components(graph):
        nodes = sorted(part)
        found[nodes] = nodes[int(keys[nodes].argmax())]
    return found
