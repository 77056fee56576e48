"""Graphs as a line of text: `0 0-1 1-2:0.5`."""

import re

import numpy as np

from graph_machine.errors import DataError
from graph_machine.tasks.graph_text import check_size

EDGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9]*\.?[0-9]+))?")


def parse_graph(
    text: str, *, keys: bool, degree: int
) -> tuple[int, list[float], np.ndarray, np.ndarray]:
    """Nodes, the numbers of the first word, adjacency and weights; one clear line for mistakes."""
    head, *words = text.split() or [""]
    try:
        first = [float(part) for part in head.split(",")]
    except ValueError:
        raise DataError(
            f"Expected {'keys' if keys else 'the source'} first, got '{head}'."
        ) from None
    pairs = []
    for word in words:
        match = EDGE.fullmatch(word)
        if match is None:
            raise DataError(f"Expected edges such as 0-1 or 0-1:0.5, got '{word}'.")
        pairs.append((int(match[1]), int(match[2]), float(match[3] or 1.0)))
    if keys and not np.isfinite(first).all():
        raise DataError(f"Expected keys that are numbers, got '{head}'.")
    if not keys and (len(first) != 1 or not first[0].is_integer() or first[0] < 0):
        raise DataError(f"Expected the number of the source first, got '{head}'.")
    n = len(first) if keys else 1 + max([int(first[0]), *(max(a, b) for a, b, _ in pairs)])
    check_size(n)
    edges, weights = np.zeros((n, n), dtype=bool), np.ones((n, n))
    for a, b, weight in pairs:
        if max(a, b) >= n or a == b:
            raise DataError(f"Expected edges between different nodes 0 to {n - 1}, got {a}-{b}.")
        if edges[a, b]:
            raise DataError(f"Expected every edge once, got {a}-{b} twice.")
        if not 0 < np.float32(weight) < np.inf:  # the model's own precision
            raise DataError(f"Expected weights above 0, got {a}-{b}:{weight:g}.")
        edges[a, b] = edges[b, a] = True
        weights[a, b] = weights[b, a] = weight
    if edges.sum(axis=-1).max() > degree:
        node = int(edges.sum(axis=-1).argmax())
        raise DataError(f"Node {node} has more neighbours than task.degree = {degree}.")
    return n, first, edges, weights
