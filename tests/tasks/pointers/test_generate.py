"""Functional graphs against a walk that follows one pointer at a time."""

import numpy as np
import pytest

from graph_machine.lab.tasks.pointers import chains, follow, is_functional, random_functions


def walk(pointers: np.ndarray, node: int, hops: int) -> int:
    for _ in range(hops):
        node = int(pointers[node])
    return node


@pytest.mark.parametrize("hops", [0, 1, 2, 3, 7, 32])
def test_following_is_walking(hops: int) -> None:
    pointers = random_functions(np.random.default_rng(0), 3, 11)
    assert is_functional(pointers).all()
    reached = follow(pointers, hops)
    for row, nodes in zip(pointers, reached, strict=True):
        assert nodes.tolist() == [walk(row, node, hops) for node in range(11)]


def test_chains_end_where_they_say() -> None:
    rng = np.random.default_rng(1)
    depth = np.array([1, 4, 9, 20])
    found = chains(rng, 4, 24, depth, ends=2)
    assert is_functional(found.pointers).all()
    assert found.hops.max(axis=1).tolist() == depth.tolist()
    for pointers, ends, hops in zip(*found, strict=True):
        fixed = np.flatnonzero(pointers == np.arange(24))
        assert len(fixed) == 2
        for node in range(24):
            assert walk(pointers, node, int(hops[node])) == ends[node]
            assert ends[node] in fixed
            if hops[node]:
                # Not there any sooner.
                assert walk(pointers, node, int(hops[node]) - 1) not in fixed


def test_the_same_seed_gives_the_same_graphs_with_ids_that_tell_nothing() -> None:
    depth = np.full(200, 5)
    one, two = (chains(np.random.default_rng(2), 200, 16, depth, ends=1) for _ in range(2))
    assert np.array_equal(one.pointers, two.pointers)
    # Where the end lies is even over the ids: chi-square with 15 degrees of freedom.
    counts = np.bincount(one.ends[:, 0], minlength=16)
    assert ((counts - 12.5) ** 2 / 12.5).sum() < 37.7
