"""Exact answers for whole batches: relaxation in numpy. Tests compare with networkx and scipy."""

import numpy as np
from jaxtyping import Float, Int, Shaped


def distances(
    lengths: Float[np.ndarray, "b n n"], sources: Int[np.ndarray, "b"]
) -> Float[np.ndarray, "b n"]:
    """Shortest distance from each graph's source; `lengths` is infinite where there is no edge."""
    count, n, _ = lengths.shape
    found = np.full((count, n), np.inf)
    found[np.arange(count), sources] = 0.0
    for _ in range(n):
        better = np.minimum(found, (found[:, None, :] + lengths).min(axis=-1))
        if np.array_equal(better, found):
            break
        found = better
    return found


def predecessors(
    lengths: Float[np.ndarray, "b n n"], found: Float[np.ndarray, "b n"]
) -> Int[np.ndarray, "b n"]:
    """The last node before each one on its shortest path; itself at the source and off reach."""
    nodes = np.arange(found.shape[1])
    through = found[:, None, :] + lengths
    before = through.argmin(axis=-1)
    stays = (found == 0) | np.isinf(found)
    return np.where(stays, nodes, before)


def largest_reachable(
    edges: Shaped[np.ndarray, "b n n"], keys: Float[np.ndarray, "b n"]
) -> Int[np.ndarray, "b n"]:
    """In each node's connected component, the node with the largest key; of equal ones, the first.

    A component passes around places in the order of keys, which differ even where keys do not.
    """
    order = np.argsort(-keys, axis=-1, kind="stable")  # the node at each place
    best = np.argsort(order, axis=-1)  # the place of each node
    near = edges.astype(bool)
    n = keys.shape[1]
    for _ in range(n):
        around = np.where(near, best[:, None, :], n).min(axis=-1)
        better = np.minimum(best, around)
        if np.array_equal(better, best):
            break
        best = better
    return np.take_along_axis(order, best, axis=-1)
