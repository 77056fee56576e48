"""GraphEncoder: flat and dense forms agree, edges come out, options do what they say."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from graph_machine import GraphEncoder
from graph_machine.errors import ConfigError
from graph_machine.graphs import graph_from_edge_index
from graph_machine.nn import ProjectedEdges, listen
from graph_machine.ops.address.dense import one_hot_addresses
from support.cases import spread

SIZES: dict[str, Any] = {
    "d_node": 8,
    "d_edge": 4,
    "num_layers": 2,
    "num_edges": 4,
    "num_heads": 2,
    "d_in": 3,
}


def make(**changes: Any) -> GraphEncoder:
    torch.manual_seed(0)
    encoder = GraphEncoder(**(SIZES | changes)).double().eval()
    spread(encoder, 0.4)
    return encoder


def flat_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Three graphs of 3, 2 and 14 nodes: a triangle, a pair, a ring."""
    ring = torch.arange(14)
    parts = [
        torch.tensor([[0, 1, 2], [1, 2, 0]]),
        torch.tensor([[3], [4]]),
        torch.stack([ring, (ring + 1) % 14]) + 5,
    ]
    batch = torch.tensor([0] * 3 + [1] * 2 + [2] * 14)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(19, 3, dtype=torch.float64, generator=generator)
    return x, torch.cat(parts, dim=1), batch


def test_a_batch_gives_what_its_graphs_give_alone() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make()
    together = encoder(x, edge_index, None, batch)
    assert together.shape == (19, 8)
    for nodes in (slice(0, 3), slice(3, 5), slice(5, 19)):
        inside = (edge_index[0] >= nodes.start) & (edge_index[0] < nodes.stop)
        alone = encoder(x[nodes], edge_index[:, inside] - nodes.start)
        assert_close(together[nodes], alone)


@pytest.mark.parametrize("space", ["weight", "logit", "sparse", "compressed"])
def test_buckets_change_nothing_but_the_padding(space: str) -> None:
    x, edge_index, batch = flat_batch()
    settings = {"sparse_chains": None} if space == "sparse" else {}
    encoder = make(address_space=space, **settings)
    found = encoder(x, edge_index, None, batch)
    encoder.padding = None
    assert_close(encoder(x, edge_index, None, batch), found)


def test_ends_of_edges_need_no_other_setting() -> None:
    x, edge_index, batch = flat_batch()
    assert make(edge_ends=True)(x, edge_index, None, batch).shape == (19, 8)
    with pytest.raises(ConfigError, match="edge_ends needs"):
        make(edge_ends=True, given_edges="first")


def test_flat_and_dense_forms_agree() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make()
    flat = encoder(x, edge_index, None, batch)
    graph = graph_from_edge_index(edge_index[:, :3], num_nodes=3, num_edges=4)
    dense = encoder(x[:3].unsqueeze(0), graph)
    assert_close(dense[0], flat[:3])
    mask = torch.tensor([[True, True, True, False]])
    padded = torch.nn.functional.pad(x[:3], (0, 0, 0, 1)).unsqueeze(0)
    wider = graph_from_edge_index(edge_index[:, :3], num_nodes=4, num_edges=4)
    assert_close(encoder(padded, wider, mask)[0, :3], flat[:3])
    assert encoder(padded, wider, mask)[0, 3].abs().max() == 0


def test_both_forms_by_position_and_by_keyword() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make()
    flat = encoder(x, edge_index, None, batch)
    assert_close(encoder(x=x, edge_index=edge_index, batch=batch), flat)
    assert_close(encoder.encode(x=x, edge_index=edge_index, batch=batch).nodes, flat)
    graph = graph_from_edge_index(edge_index[:, :3], num_nodes=3, num_edges=4)
    nodes, mask = x[:3].unsqueeze(0), torch.ones(1, 3, dtype=torch.bool)
    dense = encoder(nodes, graph, mask)
    assert_close(encoder(nodes, graph=graph), dense)
    assert_close(encoder(nodes, graph, node_mask=mask), dense)
    assert_close(encoder(x=nodes, graph=graph, node_mask=mask), dense)
    assert_close(encoder.encode(nodes, graph=graph, node_mask=mask).nodes, dense)


def test_sparse_addresses_by_one_word() -> None:
    x, edge_index, batch = flat_batch()
    dense = make(given_edges="first", empty_edge=False)
    sparse = make(address_space="sparse", sparse_s=14, sparse_chains=None)
    sparse.load_state_dict(dense.state_dict())
    assert_close(sparse(x, edge_index, None, batch), dense(x, edge_index, None, batch))
    assert GraphEncoder(address_space="sparse").config.sparse_chains == 16


def test_a_sparse_graph_of_thousands_of_nodes() -> None:
    """Dense addresses of this graph alone would take 3 x 4000^2 float32, 192 MB, a sublayer."""
    n = 4000
    ring = torch.arange(n)
    edge_index = torch.stack([ring, (ring + 1) % n])
    torch.manual_seed(0)
    # No slot is empty: an empty one looks at the whole graph.
    settings = SIZES | {"num_layers": 1, "num_edges": 3, "direction": "both"}
    encoder = GraphEncoder(**settings, address_space="sparse", sparse_s=4, sparse_chains=4).eval()
    x = torch.randn(n, 3, requires_grad=True)
    found = encoder.encode(x, edge_index, top=4)
    assert found.nodes.shape == (n, 8)
    assert bool(torch.isfinite(found.nodes).all())
    found.nodes[0].sum().backward()
    # A node hears of its neighbours and, through new edges, of theirs.
    assert x.grad is not None
    heard = set(x.grad.abs().sum(dim=1).nonzero().flatten().tolist())
    assert {n - 1, 0, 1} <= heard
    assert len(heard) < n // 4
    assert found.edge_targets is not None
    assert found.edge_targets.shape == (n, 3, 4)


def test_edges_on_request() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make()
    found = encoder.encode(x, edge_index, None, batch, top=4)
    assert_close(found.nodes, encoder(x, edge_index, None, batch))
    assert found.edge_features is not None
    assert found.edge_targets is not None
    assert found.edge_weights is not None
    assert found.edge_features.shape == (19, 4, 4)
    assert found.edge_targets.shape == found.edge_weights.shape == (19, 4, 4)
    real = found.edge_targets >= 0
    # Targets are flat ids of the node's own graph; the pair of nodes has two, and padding.
    own = batch[:, None, None].expand_as(found.edge_targets)
    assert torch.equal(batch[found.edge_targets[real]], own[real])
    assert (found.edge_targets[3:5] >= 0).sum(dim=-1).unique().tolist() == [2]
    assert (found.edge_weights.diff(dim=-1) <= 0).all()
    assert_close(found.edge_weights[:5].sum(dim=-1), torch.ones(5, 4, dtype=torch.float64))


def test_edges_of_a_model_without_edges() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(
        attention_experts="node",
        num_edge_sublayers=0,
        num_edges=0,
        project_input_edges=False,
    )
    found = encoder.encode(x, edge_index, None, batch)
    assert found.edge_features is None
    other = encoder(x, edge_index[:, :0], None, batch)
    assert_close(found.nodes, other)


def test_a_sample_of_edges_follows_the_generator_without_edges_to_return() -> None:
    hub = torch.stack([torch.zeros(9, dtype=torch.long), torch.arange(1, 10)])
    x = torch.randn(10, 3, dtype=torch.float64)
    encoder = make(
        attention_experts="node", num_edge_sublayers=0, overflow="sample", given_edges="first"
    )
    assert encoder.space is None
    seeds = [torch.Generator().manual_seed(seed) for seed in (5, 5)]
    found = encoder.encode(x, hub, generator=seeds[0])
    assert found.edge_targets is None
    assert_close(found.nodes, encoder(x, hub, generator=seeds[1]))


def test_projected_edges_let_a_transformer_see_the_graph() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(attention_experts="node", num_edge_sublayers=0, project_input_edges=True)
    with_edges = encoder(x, edge_index, None, batch)
    without = encoder(x, edge_index[:, :0], None, batch)
    assert (with_edges - without).abs().max() > 1e-3


def test_input_edges_of_rows_are_those_of_dense_addresses() -> None:
    """Empty slots see the mean of their graph, or do not count."""
    targets = torch.tensor([[[0, 2], [-1, 1], [1, -1], [-1, -1]]])
    torch.manual_seed(0)
    projected = ProjectedEdges(d_node=3, d_edge=2).double()
    nodes = torch.randn(1, 4, 3, dtype=torch.float64)
    edges = torch.randn(1, 4, 2, 2, dtype=torch.float64)
    addresses = one_hot_addresses(targets, 4, None)
    blank = nodes[0].mean(dim=0).expand(4, 3)
    rows = nodes[0], edges[0], targets[0]
    assert_close(projected.rows(*rows, None, blank), projected(nodes, edges, addresses)[0])
    expected = projected(nodes, edges, addresses, targets >= 0)[0]
    used = (targets[0].flatten() >= 0).nonzero().flatten()
    assert_close(projected.rows(*rows), expected)
    assert_close(projected.rows(*rows, used), expected)


def test_global_heads_begin_without_the_edge_expert() -> None:
    """At first the factors of one head are almost even over edges; afterwards all have learned."""
    torch.manual_seed(0)
    encoder = GraphEncoder(d_in=3, d_node=32, num_layers=1, num_edge_sublayers=0).double()
    x, edge_index, batch = flat_batch()
    seen = {}
    with listen(encoder, lambda path, tensor: seen.update({path: tensor})):
        out = encoder(x, edge_index, None, batch)
    out.pow(3).sum().backward()
    temps = seen["layers.0.node.0.edge_factor_temps"].mean(dim=(0, 2))
    assert (temps[:3] > 0.5).all()
    assert 0.05 < temps[3] < 0.2
    scales = encoder.get_parameter("stack.layers.0.node.0.attention.edge_scales")
    assert scales.grad is not None
    assert (scales.grad != 0).all()
    torch.nn.init.ones_(scales)
    encoder.reset_parameters()
    assert scales.tolist() == pytest.approx([0, 0, 0, math.log(0.1)])


def test_degrees_are_read_from_constant_features() -> None:
    x, edge_index, batch = flat_batch()
    x = torch.ones_like(x)
    paper = make(project_input_edges=False, given_edges="first", edge_values=False)
    without = paper(x, edge_index[:, 1:], None, batch)
    assert (without[0] - without[1]).abs().max() < 1e-9
    found = make()(x, edge_index[:, 1:], None, batch)
    assert (found[0] - found[1]).abs().max() > 1e-3


def test_edge_features_and_types_both_matter() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(d_edge_in=2, num_edge_types=3)
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(edge_index.shape[1], 2, dtype=torch.float64, generator=generator)
    types = torch.arange(edge_index.shape[1]) % 3
    base = encoder(x, edge_index, features, batch, edge_type=types)
    assert (encoder(x, edge_index, -features, batch, edge_type=types) - base).abs().max() > 1e-3
    other = encoder(x, edge_index, features, batch, edge_type=types.flip(0))
    assert (other - base).abs().max() > 1e-3


def test_whole_numbers_as_edge_attr_are_types() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(num_edge_types=3)
    types = torch.arange(edge_index.shape[1]) % 3
    named = encoder(x, edge_index, None, batch, edge_type=types)
    assert_close(encoder(x, edge_index, types, batch), named)
    assert_close(encoder(x, edge_index, types.unsqueeze(-1), batch), named)


def test_tokens_and_positions() -> None:
    _, edge_index, batch = flat_batch()
    tokens = torch.arange(19) % 5
    plain = make(d_in=None, num_tokens=5)
    out = plain(tokens, edge_index, None, batch)
    assert_close(plain(tokens.unsqueeze(-1), edge_index, None, batch), out)
    # The triangle has two ways round: without positions equal tokens look the same.
    same = plain(torch.zeros_like(tokens), edge_index, None, batch)
    assert_close(same[0], same[1])
    placed = make(d_in=None, num_tokens=5, num_positions=14)
    apart = placed(torch.zeros_like(tokens), edge_index, None, batch)
    assert (apart[0] - apart[1]).abs().max() > 1e-3


def test_permuting_nodes_permutes_the_output() -> None:
    x, edge_index, _ = flat_batch()
    x, edge_index = x[5:], edge_index[:, 4:] - 5
    encoder = make()
    order = torch.randperm(14, generator=torch.Generator().manual_seed(3))
    inverse = order.argsort()
    assert_close(encoder(x[order], inverse[edge_index]), encoder(x, edge_index)[order])


def test_direction() -> None:
    x, edge_index, _ = flat_batch()
    x, edge_index = x[3:5], edge_index[:, 3:4] - 3
    turned = edge_index.flip(0)
    out, into = make(direction="out"), make(direction="in")
    assert_close(into(x, edge_index), out(x, turned))
    loose = make(direction="undirected")
    assert_close(loose(x, edge_index), loose(x, turned))
    assert_close(loose(x, edge_index), loose(x, torch.cat([edge_index, turned], dim=1)))
    both = make(direction="both")
    assert both.num_categories == 4
    assert (both(x, edge_index) - both(x, turned)).abs().max() > 1e-3


def test_recurrent_rounds() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(recurrent=2)
    twice = encoder(x, edge_index, None, batch)
    assert_close(encoder(x, edge_index, None, batch, rounds=2), twice)
    assert (encoder(x, edge_index, None, batch, rounds=3) - twice).abs().max() > 1e-4
    assert_close(encoder.encode(x, edge_index, None, batch, rounds=2).nodes, twice)
    assert encoder.num_parameters == make(recurrent=5).num_parameters


def test_every_parameter_learns() -> None:
    x, edge_index, batch = flat_batch()
    encoder = make(d_edge_in=2, num_edge_types=2, num_positions=14).train()
    features = torch.ones(edge_index.shape[1], 2, dtype=torch.float64)
    types = torch.arange(edge_index.shape[1]) % 2
    encoder(x, edge_index, features, batch, edge_type=types).square().sum().backward()
    silent = [name for name, p in encoder.named_parameters() if p.grad is None]
    assert not silent


def test_repr_tells_the_size() -> None:
    encoder = make()
    assert f"{encoder.num_parameters:,} parameters" in repr(encoder)
