"""Families are what they say; answers agree with networkx and scipy."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components, dijkstra

from graph_machine.lab.tasks.algorithms.graphs import (
    FAMILIES,
    capped,
    distances,
    largest_reachable,
    predecessors,
    relabelled,
    side_by_side,
)


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
def test_families_are_simple_undirected_graphs(family: str, n: int) -> None:
    edges = FAMILIES[family](np.random.default_rng(0), 6, n)
    assert edges.shape == (6, n, n)
    assert np.array_equal(edges, edges.transpose(0, 2, 1))
    assert not edges[:, np.arange(n), np.arange(n)].any()
    again = FAMILIES[family](np.random.default_rng(0), 6, n)
    assert np.array_equal(edges, again)


def test_trees_are_trees_and_rings_and_grids_are_sparse() -> None:
    rng = np.random.default_rng(1)
    for edges in FAMILIES["tree"](rng, 4, 20):
        assert nx.is_tree(nx.from_numpy_array(edges))
    assert FAMILIES["grid"](rng, 20, 25).sum(axis=-1).max() <= 4


def test_degrees_are_capped_and_ids_shuffled() -> None:
    rng = np.random.default_rng(2)
    dense = np.triu(rng.random((5, 12, 12)) < 0.8, 1)
    dense = dense | dense.transpose(0, 2, 1)
    thin = capped(rng, dense, 3)
    assert thin.sum(axis=-1).max() <= 3
    assert np.array_equal(thin, thin.transpose(0, 2, 1))
    assert not (thin & ~dense).any()
    moved, _ = relabelled(rng, thin)
    for before, after in zip(thin, moved, strict=True):
        assert nx.is_isomorphic(nx.from_numpy_array(before), nx.from_numpy_array(after))


@pytest.mark.parametrize("n", [4, 5, 16])
def test_graphs_side_by_side(n: int) -> None:
    """Trees are connected, so there are as many components as parts, with sizes that differ."""
    edges = side_by_side(np.random.default_rng(0), FAMILIES["tree"], 12, n, 4)
    sizes = set()
    for matrix in edges:
        found, labels = connected_components(matrix)
        assert found == 4
        sizes.add(tuple(np.bincount(labels)))
    assert (len(sizes) > 1) == (n > 4)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_distances_and_paths_against_scipy(family: str) -> None:
    rng = np.random.default_rng(3)
    edges, _ = relabelled(rng, FAMILIES[family](rng, 8, 14))
    weights = np.triu(rng.uniform(0.1, 1.0, edges.shape), 1)
    weights = weights + weights.transpose(0, 2, 1)
    sources = rng.integers(14, size=8)
    lengths = np.where(edges, weights, np.inf)
    found = distances(lengths, sources)
    before = predecessors(lengths, found)
    for number in range(8):
        exact, parents = dijkstra(
            np.where(edges[number], weights[number], 0),
            indices=sources[number],
            return_predecessors=True,
        )
        np.testing.assert_allclose(found[number], exact)
        parents = np.where(parents < 0, np.arange(14), parents)
        assert before[number].tolist() == parents.tolist()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_hops_against_networkx(family: str) -> None:
    rng = np.random.default_rng(4)
    edges = FAMILIES[family](rng, 5, 13)
    found = distances(np.where(edges, 1.0, np.inf), np.zeros(5, dtype=np.int64))
    for matrix, row in zip(edges, found, strict=True):
        exact = nx.single_source_shortest_path_length(nx.from_numpy_array(matrix), 0)
        assert {node: int(d) for node, d in enumerate(row) if np.isfinite(d)} == exact


@pytest.mark.parametrize("decimals", [16, 1])  # with one, many keys are equal
def test_components_against_scipy(decimals: int) -> None:
    rng = np.random.default_rng(5)
    edges = FAMILIES["random"](rng, 10, 15)
    keys = rng.random((10, 15)).round(decimals)
    found = largest_reachable(edges, keys)
    for number in range(10):
        _, labels = connected_components(edges[number])
        for node in range(15):
            inside = np.flatnonzero(labels == labels[node])
            assert found[number, node] == inside[keys[number, inside].argmax()]
