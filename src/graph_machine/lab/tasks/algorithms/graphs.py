"""Random graphs, their text form, and exact answers."""

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from graph_machine.errors import DataError
from graph_machine.lab import config
from graph_machine.lab.tasks.generated import check_size

GraphFamily = Callable[[np.random.Generator, int, int], Bool[np.ndarray, "b n n"]]


def symmetric(edges: Bool[np.ndarray, "b n n"]) -> Bool[np.ndarray, "b n n"]:
    """Both ways, without self-loops."""
    both = edges | edges.transpose(0, 2, 1)
    both[:, np.arange(both.shape[1]), np.arange(both.shape[1])] = False
    return both


def erdos_renyi(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """Every pair with the same probability; a node has two neighbours on average."""
    upper = np.triu(rng.random((count, n, n)) < 2.0 / max(1, n - 1), 1)
    return symmetric(upper)


def trees(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """Every node hangs on one of the few nodes before it: long branches."""
    edges = np.zeros((count, n, n), dtype=bool)
    rows = np.arange(count)
    for node in range(1, n):
        parents = node - 1 - rng.integers(min(node, 4), size=count)
        edges[rows, node, parents] = True
    return symmetric(edges)


def grid_graphs(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """A grid as near to square as n allows, with a fifth of its edges missing."""
    columns = max(1, int(np.sqrt(n)))
    nodes = np.arange(n)
    edges = np.zeros((count, n, n), dtype=bool)
    right = nodes[(nodes % columns < columns - 1) & (nodes + 1 < n)]
    down = nodes[nodes + columns < n]
    edges[:, right, right + 1] = rng.random((count, len(right))) < 0.8
    edges[:, down, down + columns] = rng.random((count, len(down))) < 0.8
    return symmetric(edges)


def rings(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """A ring with a few edges cut, and a few chords."""
    nodes = np.arange(n)
    edges = np.zeros((count, n, n), dtype=bool)
    edges[:, nodes, (nodes + 1) % n] = rng.random((count, n)) > 1.5 / n
    chords = np.triu(rng.random((count, n, n)) < 0.5 / n, 1)
    return symmetric(edges | chords)


FAMILIES = dict(zip(config.FAMILIES, (erdos_renyi, trees, grid_graphs, rings), strict=True))


def long_graphs(rng: np.random.Generator, count: int, n: int) -> Bool[np.ndarray, "b n n"]:
    """Chains; a third of them with a few branches, and a third of them with a few shortcuts."""
    edges = np.zeros((count, n, n), dtype=bool)
    rows, branches = np.arange(count), rng.uniform(-0.8, 0.4, count)
    for node in range(1, n):
        back = np.where(rng.random(count) < branches, rng.integers(1, 4, size=count), 0)
        edges[rows, node, np.maximum(node - 1 - back, 0)] = True
    nodes, shortcuts = np.arange(2, n), rng.uniform(-0.8, 0.4, (count, 1))
    edges[:, nodes, nodes - 2] |= rng.random((count, len(nodes))) < shortcuts
    return symmetric(edges)


def side_by_side(
    rng: np.random.Generator, family: GraphFamily, count: int, n: int, parts: int
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
) -> tuple[Bool[np.ndarray, "b n n"], Int[np.ndarray, "b n"]]:
    """The same graphs with random node ids, which carry no information, and the old ids."""
    count, n, _ = edges.shape
    order = rng.permuted(np.broadcast_to(np.arange(n), (count, n)), axis=1)
    rows = np.arange(count)[:, None, None]
    return edges[rows, order[:, :, None], order[:, None, :]], order


EDGE_TEXT = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9]*\.?[0-9]+))?")


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
        match = EDGE_TEXT.fullmatch(word)
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


def distances(
    lengths: Float[np.ndarray, "b n n"], sources: Int[np.ndarray, "b"]
) -> Float[np.ndarray, "b n"]:
    """Shortest distance from each graph's source; `lengths` is infinite without an edge."""
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
