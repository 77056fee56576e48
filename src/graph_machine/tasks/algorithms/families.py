"""Random graphs of several families as batches of symmetric adjacency matrices, in numpy."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Bool

from graph_machine.registry import Registry

Family = Callable[[np.random.Generator, int, int], Bool[np.ndarray, "b n n"]]
FAMILIES: Registry[Family] = Registry("graph family")


def symmetric(edges: Bool[np.ndarray, "b n n"]) -> Bool[np.ndarray, "b n n"]:
    """Both ways, without self-loops."""
    both = edges | edges.transpose(0, 2, 1)
    both[:, np.arange(both.shape[1]), np.arange(both.shape[1])] = False
    return both


@FAMILIES.register("random")
def erdos_renyi(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """Every pair with the same probability; a node has two neighbours on average."""
    upper = np.triu(rng.random((count, n, n)) < 2.0 / max(1, n - 1), 1)
    return symmetric(upper)


@FAMILIES.register("tree")
def tree(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """Every node hangs on one of the few nodes before it: long branches."""
    edges = np.zeros((count, n, n), dtype=bool)
    rows = np.arange(count)
    for node in range(1, n):
        parents = node - 1 - rng.integers(min(node, 4), size=count)
        edges[rows, node, parents] = True
    return symmetric(edges)


@FAMILIES.register("grid")
def grid(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """A grid as near to square as n allows, with a fifth of its edges missing."""
    columns = max(1, int(np.sqrt(n)))
    nodes = np.arange(n)
    edges = np.zeros((count, n, n), dtype=bool)
    right = nodes[(nodes % columns < columns - 1) & (nodes + 1 < n)]
    down = nodes[nodes + columns < n]
    edges[:, right, right + 1] = rng.random((count, len(right))) < 0.8
    edges[:, down, down + columns] = rng.random((count, len(down))) < 0.8
    return symmetric(edges)


@FAMILIES.register("ring")
def ring(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """A ring with a few edges cut, and a few chords."""
    nodes = np.arange(n)
    edges = np.zeros((count, n, n), dtype=bool)
    edges[:, nodes, (nodes + 1) % n] = rng.random((count, n)) > 1.5 / n
    chords = np.triu(rng.random((count, n, n)) < 0.5 / n, 1)
    return symmetric(edges | chords)


def side_by_side(
    rng: np.random.Generator, family: Family, count: int, n: int, parts: int
) -> Bool[np.ndarray, "b n n"]:
    """Graphs of n nodes that consist of `parts` graphs of a family, of random sizes."""
    if parts == 1:
        return family(rng, count, n)
    edges = np.zeros((count, n, n), dtype=bool)
    for whole in edges:
        cuts = sorted((rng.choice(n - 1, parts - 1, replace=False) + 1).tolist())
        for first, last in pairwise((0, *cuts, n)):
            whole[first:last, first:last] = family(rng, 1, last - first)[0]
    return edges


def capped(
    rng: np.random.Generator, edges: Bool[np.ndarray, "b n n"], degree: int
) -> Bool[np.ndarray, "b n n"]:
    """At most `degree` neighbours a node: an edge stays if both its nodes rank it so."""
    weights = np.triu(rng.random(edges.shape), 1)
    weights = np.where(edges, weights + weights.transpose(0, 2, 1), np.inf)
    ranks = weights.argsort(axis=-1).argsort(axis=-1)
    kept = edges & (ranks < degree)
    return kept & kept.transpose(0, 2, 1)


def relabelled(
    rng: np.random.Generator, edges: Bool[np.ndarray, "b n n"]
) -> Bool[np.ndarray, "b n n"]:
    """The same graphs with random node ids: an id carries no information."""
    count, n, _ = edges.shape
    order = rng.permuted(np.broadcast_to(np.arange(n), (count, n)), axis=1)
    rows = np.arange(count)[:, None, None]
    return edges[rows, order[:, :, None], order[:, None, :]]
