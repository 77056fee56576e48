"""Bad input to a GraphEncoder: each case is handled, or one clear line says what is wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from graph_machine import GraphEncoder
from graph_machine.errors import GraphError
from graph_machine.graphs import InputGraph, graph_from_edge_index

SIZES: dict[str, Any] = {"d_node": 8, "d_edge": 4, "num_layers": 1, "num_edges": 3, "num_heads": 2}
PATH = torch.tensor([[0, 1, 2], [1, 2, 3]])
FIRST = {"given_edges": "first"}
NEAREST = FIRST | {"overflow": "nearest"}


def make(**changes: Any) -> GraphEncoder:
    torch.manual_seed(0)
    return GraphEncoder(**(SIZES | {"d_in": 2} | changes)).eval()


def nodes(n: int = 4) -> Tensor:
    return torch.linspace(-1, 1, 2 * n).reshape(n, 2)


def edge_index(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


def nan_at(row: int) -> Tensor:
    x = nodes()
    x[row, 1] = torch.nan
    return x


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"edge_index": edge_index((0, -1))},
            r"node ids should be 0 to 3, got -1 to 0 \(first at edge",
        ),
        ({"edge_index": edge_index((0, 1), (2, 9))}, r"first at edge 1: \[2, 9\]"),
        ({"edge_index": PATH.float()}, r"edge_index should hold whole numbers, got torch.float32"),
        ({"edge_index": PATH.T}, r"should be \(2, e\), got \(3, 2\); write edge_index.t\(\)"),
        ({"edge_index": torch.eye(4)}, r"got \(4, 4\); of an adjacency matrix write adj.nonzero"),
        (
            {"edge_index": torch.eye(4).to_sparse_coo()},
            r"edge_index is a sparse tensor \(torch.sparse_coo\); write adj.to_sparse_coo\(\)",
        ),
        ({"x": nodes() * 1j}, r"x holds complex numbers; write torch.view_as_real"),
        ({"edge_attr": torch.zeros(4).long()}, r"4 entries, one per node, for 3 edges; a batch ve"),
        ({"x": nan_at(2)}, r"x is not finite at \(2, 1\)"),
        ({"x": nodes() / 0}, r"x is not finite at \(0, 0\)"),
        ({"x": nodes()[:0], "edge_index": PATH[:, :0]}, r"there are no nodes: x is \(0, 2\)"),
        ({"x": nodes()[:, :1]}, r"x should be \(n, d_in\) with d_in = 2, got \(4, 1\)"),
        ({"x": torch.ones(4, 2).long()}, r"x holds torch.int64; say num_tokens"),
        ({"batch": torch.tensor([0, 1, 0, 1])}, r"entry 2 is 0; sort the nodes by graph first"),
        ({"batch": torch.tensor([-1, 0, 0, 1])}, r"entry 0 is -1"),
        ({"batch": torch.tensor([0, 0, 1])}, r"batch should be \(n,\) = \(4,\), got \(3,\)"),
        ({"batch": torch.zeros(4)}, r"batch should hold whole numbers, got torch.float32"),
        ({"batch": torch.tensor([0, 0, 1, 1])}, r"edge 1 \(\[1, 2\]\) leads from graph 0 to graph"),
        ({"edge_attr": torch.ones(3, 5)}, r"made without edge features: say d_edge_in=5"),
        ({"edge_attr": torch.ones(3).long()}, r"edges come with types: say num_edge_types"),
        ({"x": None}, r"x should be a tensor, got None"),
        ({"x": nodes().numpy()}, r"x should be a tensor, got ndarray; write torch.as_tensor\(x\)"),
        ({"edge_index": None}, r"edge_index should be a tensor, got None"),
        ({"x": nodes().double() * 1e300}, r"x is too large for torch.float32 at \(0, 0\)"),
        (
            {"batch": torch.tensor([0, 1, 0, 1], dtype=torch.uint8)},
            r"entry 2 is 0; sort the nodes by graph first",
        ),
        (
            {"edge_attr": torch.ones(3, 5), "edge_type": torch.zeros(3).long()},
            r"made without edge features: say d_edge_in=5",
        ),
        ({"node_mask": torch.ones(4).bool()}, r"node_mask goes with a graph"),
        ({"graph": 3}, r"a graph holds its edges: no edge_index, no edge_attr"),
        ({"graph": 3, "edge_index": None}, r"graph should be an InputGraph, got int"),
        (
            {"x": nodes().to_sparse()},
            r"x is a sparse tensor \(torch.sparse_coo\); write x.to_dense",
        ),
        ({"x": nodes().to("meta")}, r"the encoder is on cpu, x on meta"),
        ({"edge_index": PATH.to("meta")}, r"the encoder is on cpu, edge_index on meta"),
        ({"batch": torch.zeros(4).long().to("meta")}, r"the encoder is on cpu, batch on meta"),
    ],
)
def test_one_clear_line(given: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"x": nodes(), "edge_index": PATH} | given
    with pytest.raises(GraphError, match=message) as caught:
        make()(**arguments)
    assert str(caught.value).startswith("GraphEncoder: ")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"d_edge_in": 2}, {}, r"made with d_edge_in=2, but there is no edge_attr"),
        ({"d_edge_in": 2}, {"edge_attr": torch.ones(3, 1)}, r"d_edge_in = 2, got \(3, 1\)"),
        ({"d_edge_in": 1}, {"edge_attr": torch.ones(2, 1)}, r"edge_attr has 2 entries for 3"),
        (
            {"d_edge_in": 1},
            {"edge_attr": torch.tensor([1.0, torch.inf, 0.0])},
            r"edge_attr is not finite at \(1, 0\)",
        ),
        (
            {"num_edge_types": 2},
            {"edge_attr": torch.tensor([0, 1, 2])},
            r"edge types should be 0 to 1, got 0 to 2",
        ),
        ({"num_edge_types": 2}, {}, r"made with num_edge_types=2, but there is no edge_type"),
        (
            {"num_edge_types": 2},
            {"edge_attr": torch.zeros(3, 3).long()},
            r"edge types should be \(e,\), got \(3, 3\); make one number of the columns",
        ),
        (NEAREST, {}, r"overflow='nearest' needs pos \(n, p\) of all 4"),
        (
            NEAREST,
            {"pos": torch.ones(4)},
            r"needs pos \(n, p\) of all 4 nodes, got \(4,\)",
        ),
        (
            NEAREST,
            {"pos": torch.tensor([[0.0], [torch.nan], [1.0], [2.0]])},
            r"pos is not finite at \(1, 0\)",
        ),
        ({"num_positions": 3}, {}, r"a graph has 4 nodes, but there are num_positions = 3"),
        ({"d_in": None, "num_tokens": 2}, {}, r"x should be tokens \(n\) of whole numbers"),
        (
            {"d_in": None, "num_tokens": 2},
            {"x": torch.tensor([0, 1, 2, 0])},
            r"tokens should be 0 to 1, got 0 to 2",
        ),
    ],
)
def test_input_that_does_not_fit_the_encoder(
    settings: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {"x": nodes(), "edge_index": PATH} | given
    with pytest.raises(GraphError, match=message):
        make(**settings)(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_directions_and_overflow_rules_are_checked_when_the_encoder_is_made() -> None:
    with pytest.raises(GraphError, match="'up'"):
        make(direction="up")
    with pytest.raises(GraphError, match="'frist'"):
        make(overflow="frist")


def test_numbers_that_do_not_fit_into_half_precision() -> None:
    with pytest.raises(GraphError, match=r"x is too large for torch.float16 at \(3, 1\)"):
        make().half()(nodes() * 1e5 * (nodes() == 1), PATH)


def test_unchecked_values_pass_through() -> None:
    encoder = make(check=False, d_edge_in=1, **NEAREST)
    features = torch.tensor([1.0, torch.nan, 0.0])
    found = encoder(nodes(), PATH, features, pos=nodes() * torch.nan)
    assert found.isnan().any()


def test_more_edges_than_slots_names_the_node_and_both_numbers() -> None:
    star = edge_index((0, 1), (0, 2), (0, 3))
    with pytest.raises(GraphError, match=r"node 0 has 3 edges, but k = 3 slots hold the self"):
        make(**FIRST)(nodes(), star)
    for overflow in ("first", "sample"):
        assert make(**FIRST, overflow=overflow)(nodes(), star).isfinite().all()
    pos = torch.tensor([[0.0], [5.0], [1.0], [2.0]])
    near = make(**NEAREST)(nodes(), star, pos=pos)
    assert_close(near, make(**FIRST)(nodes(), edge_index((0, 2), (0, 3))))


def test_self_loops_and_duplicates_change_nothing() -> None:
    encoder = make()
    base = encoder(nodes(), PATH)
    noisy = torch.cat([PATH, PATH[:, 1:2], edge_index((1, 1), (3, 3)), PATH], dim=1)
    assert_close(encoder(nodes(), noisy), base)


def test_a_typed_self_loop_tells_its_type() -> None:
    loop = edge_index((1, 1), (0, 1))
    graph = graph_from_edge_index(
        loop,
        num_nodes=2,
        num_edges=2,
        edge_types=torch.tensor([1, 0]),
        num_types=2,
        edge_features=torch.tensor([[7.0], [8.0]]),
    )
    assert graph.targets.tolist() == [[0, 1], [1, -1]]
    assert graph.categories.tolist() == [[2, 0], [1, 3]]
    assert graph.features is not None
    assert graph.features[..., 0].tolist() == [[0, 8], [7, 0]]


def test_parallel_edges_of_different_types_or_features_stay() -> None:
    twice = edge_index((0, 1), (0, 1))
    types = graph_from_edge_index(
        twice, num_nodes=2, num_edges=3, edge_types=torch.tensor([1, 0]), num_types=2
    )
    assert types.targets[0].tolist() == [0, 1, 1]
    features = graph_from_edge_index(
        twice, num_nodes=2, num_edges=3, edge_features=torch.ones(2, 1)
    )
    assert features.targets[0].tolist() == [0, 1, 1]
    assert graph_from_edge_index(twice, num_nodes=2, num_edges=3).targets[0].tolist() == [0, 1, -1]


@pytest.mark.parametrize("direction", ["out", "in", "both", "undirected"])
def test_a_typed_self_loop_has_no_way_back(direction: Any) -> None:
    graph = graph_from_edge_index(
        edge_index((1, 1), (0, 1)),
        num_nodes=2,
        num_edges=2,
        edge_types=torch.tensor([1, 0]),
        num_types=2,
        direction=direction,
    )
    assert graph.targets[1, 0] == 1
    assert graph.categories[1, 0] == 1


def test_a_second_self_loop_is_like_any_parallel_edge() -> None:
    twice = edge_index((0, 0), (0, 1), (0, 0))

    def slots(**more: Any) -> tuple[list[int], list[int]]:
        graph = graph_from_edge_index(twice, num_nodes=2, num_edges=3, **more)
        return graph.targets[0].tolist(), graph.categories[0].tolist()

    assert slots() == ([0, 1, -1], [1, 0, 2])
    assert slots(edge_types=torch.tensor([1, 0, 1])) == ([0, 1, -1], [1, 0, 3])
    assert slots(edge_types=torch.tensor([1, 0, 0])) == ([0, 1, 0], [1, 0, 0])
    features = torch.tensor([[7.0], [8.0], [9.0]])
    graph = graph_from_edge_index(twice, num_nodes=2, num_edges=3, edge_features=features)
    assert graph.features is not None
    assert graph.features[0, :, 0].tolist() == [7, 8, 9]


def test_isolated_nodes_and_gaps_in_the_batch_vector() -> None:
    encoder = make()
    alone = encoder(nodes(), PATH[:, :0])
    assert alone.shape == (4, 8)
    assert alone.isfinite().all()
    # PyG numbers an empty graph, too: graph 1 has no nodes, and no rows.
    batch = torch.tensor([0, 0, 2, 2])
    apart = encoder(nodes(), edge_index((0, 1), (2, 3)), None, batch)
    assert_close(apart, encoder(nodes(), edge_index((0, 1), (2, 3)), None, batch // 2))


def test_other_dtypes_are_welcome() -> None:
    encoder = make()
    base = encoder(nodes(), PATH)
    assert_close(encoder(nodes().double(), PATH.int()), base)
    half = encoder(nodes().bfloat16(), PATH)
    assert half.dtype == torch.float32
    batch = torch.zeros(4, dtype=torch.int32)
    assert_close(encoder(nodes(), PATH, None, batch), base)


@pytest.mark.usefixtures("unchecked")  # jaxtyping does not know all of them
def test_unsigned_whole_numbers() -> None:
    encoder = make()
    assert_close(encoder(nodes(), PATH.to(torch.uint16)), encoder(nodes(), PATH))
    coded = make(d_in=None, num_tokens=3)
    tokens = torch.tensor([0, 1, 2, 0])
    assert_close(coded(tokens.to(torch.uint16), PATH), coded(tokens, PATH))


def test_an_encoder_without_numbers() -> None:
    with pytest.raises(GraphError, match="meta"):
        make().to("meta")(nodes().to("meta"), PATH.to("meta"))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": torch.ones(1, 3).bool()}, r"node_mask should be bool \(b, n\) = \(1, 4\)"),
        ({"mask": torch.ones(1, 4)}, r"node_mask should be bool .* got torch.float32"),
        ({"mask": torch.zeros(1, 4).bool()}, r"graph 0 of the batch has no nodes"),
        (
            {"k": 5, "settings": FIRST},
            r"the graph should have \(b, n, k\) = \(1, 4, 3\), got \(4, 5\)",
        ),
        ({"types": 9}, r"the graph has 11 edge categories, the encoder knows 3: make the graph"),
        (
            {"direction": "both"},
            r"knows 3: make the graph with num_edge_types=None and direction='o",
        ),
        ({"more": {"batch": torch.zeros(4).long()}}, r"batch goes with an edge_index, not with"),
        ({"more": {"edge_type": torch.zeros(3).long()}}, r"edge_type goes with an edge_index"),
        ({"more": {"pos": nodes()}}, r"pos goes with an edge_index"),
        (
            {"mask": torch.ones(1, 4).bool(), "more": {"node_mask": torch.ones(1, 4).bool()}},
            r"the graph or its node_mask is given twice",
        ),
        (
            {"mask": torch.tensor([[True, True, False, False]])},
            r"graph 0 of the batch: slot 1 of node 1 points to node 2, which node_mask says",
        ),
        ({"features": torch.ones(3, 2)}, r"edge features have width 2, the encoder has d_edge_in="),
        ({"x": nodes()}, r"x should be \(b, n, d_in\) with d_in = 2, got \(4, 2\)"),
    ],
)
def test_dense_form(changes: dict[str, Any], message: str) -> None:
    graph = graph_from_edge_index(
        PATH,
        num_nodes=4,
        num_edges=changes.get("k", 3),
        num_types=changes.get("types"),
        edge_features=changes.get("features"),
        direction=changes.get("direction", "out"),
        overflow="first",
    )
    x = changes.get("x", nodes().unsqueeze(0))
    encoder = make(**changes.get("settings", {}))
    with pytest.raises(GraphError, match=message):
        encoder(x, graph, changes.get("mask"), **changes.get("more", {}))


def test_fewer_categories_than_the_encoder_knows_are_an_error() -> None:
    """`self` and `empty` come after the types, so they would be read as types."""
    encoder = make(num_edge_types=4)
    types = torch.tensor([0, 1, 1])
    slots: dict[str, Any] = {"num_nodes": 4, "num_edges": 3, "edge_types": types}
    with pytest.raises(GraphError, match=r"has 4 edge categories, the encoder knows 6: .*types=4"):
        encoder(nodes().unsqueeze(0), graph_from_edge_index(PATH, **slots))
    graph = graph_from_edge_index(PATH, **slots, num_types=4)
    assert_close(encoder(nodes().unsqueeze(0), graph)[0], encoder(nodes(), PATH, types))


@pytest.mark.usefixtures("unchecked")
def test_dense_targets_out_of_range() -> None:
    targets = torch.tensor([[[0, 7, -1]] * 4])
    with pytest.raises(GraphError, match="targets"):
        make()(nodes().unsqueeze(0), InputGraph(targets, torch.zeros_like(targets), 3))
