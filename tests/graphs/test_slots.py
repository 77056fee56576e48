"""Input graphs as edge slots: grids, sequences, any edge_index, and what cannot be put there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from graph_machine.errors import GraphError
from graph_machine.graphs import (
    GRID_CATEGORIES,
    InputGraph,
    batch_graphs,
    graph_from_edge_index,
    grid_graph,
    sequence_graph,
)


def edge_index(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


STAR = edge_index((0, 1), (0, 2), (0, 3), (3, 0))


def test_grid() -> None:
    graph = grid_graph(2, 3, 6)
    # Cell 4 is the middle of the lower row: self, up, left, right; down is off the board.
    assert graph.targets[4].tolist() == [4, 1, 3, 5, -1, -1]
    names = [GRID_CATEGORIES[c] for c in graph.categories[4].tolist()]
    assert names == ["self", "up", "left", "right", "empty", "empty"]
    assert graph.num_categories == 6
    assert graph.num_edges == 6
    assert graph.check() is graph
    middle = grid_graph(9, 9, 8).targets[40].tolist()
    assert middle == [40, 31, 49, 39, 41, -1, -1, -1]


def test_sequence() -> None:
    """The last slot is empty, so that an edge reaches the whole past."""
    graph = sequence_graph(4, 3)
    assert graph.targets.tolist() == [[0, -1, -1], [1, 0, -1], [2, 1, -1], [3, 2, -1]]
    assert graph.categories.tolist() == [[0, 3, 3], [0, 1, 3], [0, 1, 3], [0, 1, 3]]
    full = sequence_graph(4, 3, empty_slot=False)
    assert full.targets.tolist() == [[0, -1, -1], [1, 0, -1], [2, 1, 0], [3, 2, 1]]
    assert sequence_graph(2, 1).targets.tolist() == [[0], [1]]


def test_any_graph_has_its_self_edge_first_then_edges_in_their_order() -> None:
    graph = graph_from_edge_index(
        edge_index((2, 1), (0, 2), (2, 0), (0, 1)), num_nodes=4, num_edges=4
    )
    assert graph.targets.tolist() == [
        [0, 2, 1, -1],
        [1, -1, -1, -1],
        [2, 1, 0, -1],
        [3, -1, -1, -1],
    ]
    # One type, then self, then empty.
    assert graph.categories[0].tolist() == [1, 0, 0, 2]
    assert graph.num_categories == 3
    assert graph.features is None


def test_types_and_features_go_with_their_edges() -> None:
    features = torch.arange(4.0).unsqueeze(-1) + 1
    graph = graph_from_edge_index(
        edge_index((2, 1), (0, 2), (2, 0), (0, 1)),
        num_nodes=3,
        num_edges=3,
        edge_types=torch.tensor([4, 0, 2, 1]),
        edge_features=features,
    )
    assert graph.num_categories == 7
    assert graph.categories.tolist() == [[5, 0, 1], [5, 6, 6], [5, 4, 2]]
    assert graph.features is not None
    assert graph.features[..., 0].tolist() == [[0, 2, 4], [0, 0, 0], [0, 1, 3]]


def test_a_graph_without_edges_is_self_edges() -> None:
    graph = graph_from_edge_index(edge_index(), num_nodes=2, num_edges=2)
    assert graph.targets.tolist() == [[0, -1], [1, -1]]
    assert graph.num_categories == 3


def test_more_neighbours_than_slots() -> None:
    with pytest.raises(GraphError) as caught:
        graph_from_edge_index(STAR, num_nodes=4, num_edges=3)
    assert str(caught.value) == (
        "graph_from_edge_index: node 0 has 3 edges, but k = 3 slots hold the self edge and 2 "
        "more; raise num_edges or choose overflow='sample', 'nearest' or 'first'."
    )
    first = graph_from_edge_index(STAR, num_nodes=4, num_edges=3, overflow="first")
    assert first.targets.tolist() == [[0, 1, 2], [1, -1, -1], [2, -1, -1], [3, 0, -1]]
    kept = set()
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        graph = graph_from_edge_index(
            STAR, num_nodes=4, num_edges=3, overflow="sample", generator=generator
        )
        neighbours = graph.targets[0, 1:].tolist()
        assert graph.targets[3].tolist() == [3, 0, -1]
        assert len(set(neighbours)) == 2
        kept.add(frozenset(neighbours))
    assert kept == {frozenset(pair) for pair in ((1, 2), (1, 3), (2, 3))}


def test_what_overflow_keeps_stays_in_its_order() -> None:
    star = edge_index(*((0, target) for target in (5, 3, 1, 2, 4)), *((1, t) for t in (4, 0, 2)))
    slots: dict[str, Any] = {"num_nodes": 6, "num_edges": 4}
    listed = [5, 3, 1, 2, 4]
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        graph = graph_from_edge_index(star, **slots, overflow="sample", generator=generator)
        kept = graph.targets[0, 1:].tolist()
        assert kept == [target for target in listed if target in kept]
        assert graph.targets[1].tolist() == [1, 4, 0, 2]  # it has room: nothing is shuffled
    pos = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    near = graph_from_edge_index(star, **slots, overflow="nearest", positions=pos)
    assert near.targets[:2].tolist() == [[0, 3, 1, 2], [1, 4, 0, 2]]


def test_a_fixed_sample_depends_on_nothing_but_the_node() -> None:
    star = edge_index(*((0, target) for target in range(1, 9)))
    slots: dict[str, Any] = {"num_edges": 4, "overflow": "sample", "fixed": True}
    once = graph_from_edge_index(star, num_nodes=9, **slots)
    again = graph_from_edge_index(star, num_nodes=9, **slots)
    assert torch.equal(once.targets, again.targets)
    batch = torch.cat([star + 9, star], dim=1)
    assert torch.equal(
        graph_from_edge_index(batch, num_nodes=18, **slots).targets[0], once.targets[0]
    )
    generators = [torch.Generator().manual_seed(seed) for seed in range(8)]
    drawn = {
        tuple(graph_from_edge_index(star, num_nodes=9, **slots, generator=g).targets[0].tolist())
        for g in generators
    }
    assert len(drawn) > 1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("places", "kept"),
    [
        (torch.tensor([[0], [200], [10], [20]], dtype=torch.uint8), [2, 3]),
        (torch.tensor([[False], [True], [False], [False]]), [2, 3]),
        (torch.tensor([[0.0], [60000.0], [500.0], [400.0]], dtype=torch.float16), [2, 3]),
        (torch.tensor([[2**40], [2**40 + 3], [2**40 + 1], [2**40 + 2]]), [2, 3]),
    ],
)
def test_distances_of_any_kind_of_number(places: Any, kept: list[int]) -> None:
    star = edge_index((0, 1), (0, 2), (0, 3))
    slots: dict[str, Any] = {"num_nodes": 4, "num_edges": 3, "overflow": "nearest"}
    graph = graph_from_edge_index(star, **slots, positions=places)
    assert graph.targets[0].tolist() == [0, *kept]


def test_sampled_overflow_keeps_features_with_their_edges() -> None:
    features = STAR.T.float()
    graph = graph_from_edge_index(
        STAR, num_nodes=4, num_edges=3, edge_features=features, overflow="sample"
    )
    assert graph.features is not None
    real = graph.targets[:, 1:] >= 0
    assert torch.equal(graph.features[:, 1:, 1][real].long(), graph.targets[:, 1:][real])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_nodes": 0}, r"the graph is empty \(num_nodes = 0\)"),
        ({"num_edges": 0}, r"needs k >= 1 edge slots, got 0"),
        ({"num_nodes": 3}, r"node ids should be 0 to 2, got 0 to 3"),
        ({"edge_index": edge_index((0, -1))}, r"node ids should be 0 to 3, got -1 to 0"),
        ({"edge_index": torch.zeros(3, 4).long()}, r"edge_index should be \(2, e\), got \(3, 4\)"),
        ({"edge_index": torch.zeros(2).long()}, r"edge_index should be \(2, e\), got \(2,\)"),
        ({"edge_types": torch.zeros(3).long()}, r"edge_types has 3 entries for 4 edges"),
        ({"edge_types": torch.zeros(4, 2).long()}, r"edge_types should be \(e,\), got \(4, 2\)"),
        ({"edge_features": torch.ones(4)}, r"edge_features should be \(e, f\), got \(4,\)"),
        ({"edge_features": torch.ones(4, 1) / 0}, r"edge_features is not finite at \(0, 0\)"),
        ({"edge_index": None}, r"edge_index should be a tensor, got None"),
        ({"edge_features": torch.zeros(5, 1)}, r"edge_features has 5 entries for 4 edges"),
        (
            {"edge_types": torch.tensor([0, 1, 2, 3]), "num_types": 2},
            r"edge types should be 0 to 1, got 0 to 3",
        ),
        ({"edge_types": torch.tensor([0, -1, 0, 0])}, r"edge types should be 0 to 0, got -1 to 0"),
        ({"overflow": "frist"}, r"Unknown overflow rule 'frist'\. Did you mean 'first'\?"),
    ],
)
def test_bad_edges(changes: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"edge_index": STAR, "num_nodes": 4, "num_edges": 5}
    with pytest.raises(GraphError, match=message):
        graph_from_edge_index(**(settings | changes))


GOOD, ZEROS = torch.tensor([[0, 1], [1, -1]]), torch.zeros(2, 2, dtype=torch.long)
WRONG: dict[str, Callable[[], Any]] = {
    "k >= 5": lambda: grid_graph(3, 3, 4),
    r"the grid is empty \(0 x 3\)": lambda: grid_graph(0, 3, 8),
    "k >= 1": lambda: sequence_graph(5, 0),
    "sequence": lambda: sequence_graph(0, 5),
    "targets should": lambda: InputGraph(torch.tensor([[0, 2], [1, 0]]), ZEROS, 1).check(),
    "categories": lambda: InputGraph(GOOD, torch.tensor([[0, 5], [1, 0]]), 2).check(),
    r"empty: targets are \(n, k\) = \(0, 2\)": lambda: InputGraph(GOOD[:0], ZEROS[:0], 1).check(),
    r"\(n, k\) = \(2, 0\)": lambda: InputGraph(GOOD[:, :0], ZEROS[:, :0], 1).check(),
    r"for slots \(2, 2\) .* got \(2, 1\)": lambda: InputGraph(GOOD, ZEROS[:, :1], 1).check(),
    r"features .* got \(2,\)": lambda: InputGraph(GOOD, ZEROS, 1, torch.ones(2, 2)).check(),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("message", WRONG)
def test_bad_sizes_and_hand_made_graphs(message: str) -> None:
    InputGraph(GOOD, ZEROS, 1).check()
    with pytest.raises(GraphError, match=message):
        WRONG[message]()


def test_batches_are_padded_with_empty_slots_and_masked() -> None:
    graphs = [
        graph_from_edge_index(
            edge_index((0, 1)), num_nodes=n, num_edges=2, edge_features=torch.ones(1, 3)
        )
        for n in (2, 4)
    ]
    batch, mask = batch_graphs(graphs)
    assert mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.targets.shape == (2, 4, 2)
    assert batch.targets[0].tolist() == [[0, 1], [1, -1], [-1, -1], [-1, -1]]
    assert batch.categories[0, 2:].tolist() == [[2, 2], [2, 2]]
    assert batch.features is not None
    assert batch.features.sum() == 6
    assert batch.features[0, 0, 1].tolist() == [1, 1, 1]


def test_bad_batches() -> None:
    with pytest.raises(GraphError, match="graphs"):
        batch_graphs([])
    with pytest.raises(GraphError, match="categories"):
        batch_graphs([sequence_graph(3, 2), sequence_graph(3, 3)])
    widths = [
        graph_from_edge_index(
            edge_index((0, 1)), num_nodes=2, num_edges=2, edge_features=torch.ones(1, width)
        )
        for width in (1, 2)
    ]
    with pytest.raises(GraphError, match="categories"):
        batch_graphs(widths)
    empty = InputGraph(torch.zeros(0, 2).long(), torch.zeros(0, 2).long(), 1)
    with pytest.raises(GraphError, match="empty"):
        batch_graphs([empty])
    single = graph_from_edge_index(STAR, num_nodes=4, num_edges=5)
    with pytest.raises(GraphError, match=r"graph 1 should have targets \(n, k\), got \(2, 4, 5\)"):
        batch_graphs([single, single.expand(2)])


def test_more_slots_are_empty_ones() -> None:
    graph = grid_graph(2, 2, 5)
    wide = graph.with_slots(7).check()
    assert torch.equal(wide.targets[:, :5], graph.targets)
    assert (wide.targets[:, 5:] == -1).all()
    assert (wide.categories[:, 5:] == len(GRID_CATEGORIES) - 1).all()
    assert graph.with_slots(5).num_edges == 5
    featured = InputGraph(graph.targets, graph.categories, 6, torch.ones(4, 5, 2)).with_slots(6)
    assert featured.features is not None
    assert featured.features.shape == (4, 6, 2)
    with pytest.raises(GraphError, match="k = 5"):
        graph.with_slots(4)


def test_a_graph_is_a_pytree() -> None:
    """So `torch.export` and others take it apart and put it together again."""
    graph = graph_from_edge_index(STAR, num_nodes=4, edge_features=torch.rand(4, 2))
    leaves, spec = tree_flatten(graph)
    assert len(leaves) == 4  # targets, categories, their number, features
    doubled = tree_unflatten(leaves, spec)
    assert isinstance(doubled, InputGraph)
    assert torch.equal(doubled.targets, graph.targets)
    moved = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, graph)
    assert moved.check().num_categories == graph.num_categories
