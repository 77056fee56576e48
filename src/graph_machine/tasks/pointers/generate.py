"""Functional graphs: every node points at one node. Seeded, in numpy, a batch at a time."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int


class Chains(NamedTuple):
    """Pointers of b graphs, where each node ends, and how many hops that takes."""

    pointers: Int[np.ndarray, "b n"]
    ends: Int[np.ndarray, "b n"]
    hops: Int[np.ndarray, "b n"]


def follow(pointers: Int[np.ndarray, "b n"], hops: int) -> Int[np.ndarray, "b n"]:
    """The node that each node reaches after `hops` pointers, by repeated squaring."""
    reached = np.broadcast_to(np.arange(pointers.shape[1]), pointers.shape)
    power = pointers
    while hops:
        if hops & 1:
            reached = np.take_along_axis(power, reached, axis=1)
        power = np.take_along_axis(power, power, axis=1)
        hops >>= 1
    return reached


def random_functions(
    rng: np.random.Generator, count: int, num_nodes: int
) -> Int[np.ndarray, "b n"]:
    """Every node points at any node, itself included, all equally likely."""
    return rng.integers(num_nodes, size=(count, num_nodes))


def chains(
    rng: np.random.Generator, count: int, num_nodes: int, depth: Int[np.ndarray, "b"], ends: int
) -> Chains:
    """Graphs whose pointers lead to one of `ends` nodes that point at themselves.

    One chain has exactly `depth` hops; every other node points at a random node that is less than
    `depth` hops from its end. Node ids are random.
    """
    assert num_nodes >= ends + int(depth.max())
    pointers = np.zeros((count, num_nodes), dtype=np.int64)
    hops = np.zeros((count, num_nodes), dtype=np.int64)
    rows = np.arange(count)
    pointers[:, :ends] = np.arange(ends)
    for node in range(ends, num_nodes):
        step = node - ends  # the first nodes are the chain, one behind the other
        on_chain = step < depth
        allowed = hops[:, :node] < depth[:, None]
        draw = np.where(allowed, rng.random((count, node)), -1.0).argmax(axis=1)
        target = np.where(on_chain, 0 if step == 0 else node - 1, draw)
        pointers[:, node] = target
        hops[:, node] = hops[rows, target] + 1
    names = rng.permuted(np.broadcast_to(np.arange(num_nodes), pointers.shape), axis=1)
    shuffled, shuffled_hops = np.empty_like(pointers), np.empty_like(hops)
    np.put_along_axis(shuffled, names, np.take_along_axis(names, pointers, axis=1), axis=1)
    np.put_along_axis(shuffled_hops, names, hops, axis=1)
    return Chains(shuffled, follow(shuffled, int(depth.max())), shuffled_hops)


def is_functional(pointers: Int[np.ndarray, "b n"]) -> Bool[np.ndarray, "b"]:
    """Whether every node of a graph points at one of its nodes."""
    return ((pointers >= 0) & (pointers < pointers.shape[1])).all(axis=1)
