"""Where nodes are drawn: apart from each other, neighbours near, the same every time."""

import networkx as nx
import numpy as np
import pytest

from graph_machine.lab.records.drawing import graph_layout, node_radius

GRAPHS = {
    "tree": nx.balanced_tree(2, 4),
    "stars": nx.disjoint_union(nx.star_graph(19), nx.star_graph(18)),
    "path": nx.path_graph(40),
    "crowd": nx.gnp_random_graph(32, 0.12, seed=0),  # with isolated nodes
    "nothing": nx.empty_graph(5),
    "one": nx.empty_graph(1),
    "two": nx.path_graph(2),
}


def laid_out(graph: nx.Graph) -> tuple[np.ndarray, np.ndarray]:
    edges = np.array(graph.edges(), dtype=np.int64).reshape(-1, 2)
    return graph_layout(len(graph), edges), edges


def distances(places: np.ndarray) -> np.ndarray:
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_are_apart_and_neighbours_near(name: str) -> None:
    places, edges = laid_out(GRAPHS[name])
    assert np.array_equal(places, laid_out(GRAPHS[name])[0])
    assert np.array_equal(places, graph_layout(len(places), edges[:, ::-1]))
    assert places.min() >= 0
    assert places.max() <= 1
    far = distances(places)
    others = far[~np.eye(len(far), dtype=bool)]
    assert (others >= 2 * node_radius(places)).all()
    if len(edges) > 1:
        assert far[edges[:, 0], edges[:, 1]].max() < 0.6 * others.max()


def test_a_grid_looks_like_one() -> None:
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6))
    places, edges = laid_out(grid)
    steps = np.abs(places[edges[:, 0]] - places[edges[:, 1]])
    assert steps.max(axis=1).min() > 0.15  # a fifth of the side in one direction
    assert steps.min(axis=1).max() < 0.04  # and nearly nothing in the other


def test_parts_stand_beside_each_other() -> None:
    rings = nx.disjoint_union_all([nx.cycle_graph(size) for size in (9, 5, 3, 1, 1)])
    places, _ = laid_out(rings)
    boxes = [
        (places[sorted(part)].min(axis=0), places[sorted(part)].max(axis=0))
        for part in nx.connected_components(rings)
    ]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:i]:
            assert ((low > other_high) | (high < other_low)).any()
