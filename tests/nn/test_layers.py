"""The layers one by one: settings, special cases and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.graphs import graph_from_edge_index, grid_graph
from graph_machine.nn import (
    EdgeAugmentedAttention,
    EdgeCentricReferral,
    EdgeInput,
    EdgeSublayer,
    GraphMachineStack,
    Layer,
    NodeInput,
    NodeSublayer,
    ProjectedEdges,
    Sharpener,
    SwiGLU,
    listen,
)
from graph_machine.ops import rotary_angles, rotate, sharpen, sinusoidal_positions, temperature
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Context
from graph_machine.state import GraphState
from support.cases import (
    KINDS,
    SMALL,
    StackSizes,
    batched,
    dense,
    edge_sublayer,
    edges_of,
    make_stack,
    make_state,
    node_sublayer,
    ring,
    spread,
)
from tolerances import assert_close

F64 = torch.float64


# --- parts ----------------------------------------------------------------------------------


def test_swiglu() -> None:
    layer = SwiGLU(3, expansion=2).double()
    x = torch.randn(4, 3, dtype=F64)
    gate, up = layer.gate_up.weight[:6], layer.gate_up.weight[6:]
    hidden = (x @ gate.T) * torch.sigmoid(x @ gate.T) * (x @ up.T)
    assert_close(layer(x), hidden @ layer.down.weight.T)
    assert not any(name.endswith("bias") for name, _ in layer.named_parameters())


def test_head_projection_cuts_one_product_into_parts() -> None:
    layer = EdgeAugmentedAttention(d_node=5, d_edge=4, num_heads=3, d_key=4).double()
    x = torch.randn(2, 7, 5, dtype=F64)
    parts, weights = layer.from_nodes(x, layer, Context()), layer.from_nodes.weights()
    assert parts["queries"].shape == (2, 3, 7, 4)
    assert parts["edge_temps"].shape == (2, 3, 7)
    assert_close(parts["queries"], torch.einsum("bnd,hwd->bhnw", x, weights["queries"]))
    raw = torch.einsum("bnd,hd->bhn", x, weights["edge_temps"][:, 0])
    assert_close(parts["edge_temps"], temperature(raw))


@pytest.mark.parametrize(
    ("kind", "value"), [("projection", 1.0), ("learned", 1.0), ("fixed", 1.5), ("off", 1.0)]
)
def test_sharpener_kinds(kind: Any, value: float) -> None:
    sharpener = Sharpener(d_edge=4, num_edges=3, kind=kind, value=value).double()
    edges = torch.randn(2, 7, 3, 4, dtype=F64)
    temps = sharpener(edges)
    count = sum(p.numel() for p in sharpener.parameters())
    assert count == {"projection": 8, "learned": 3, "fixed": 0, "off": 0}[kind]
    if kind == "off":
        assert temps is None
        return
    assert temps is not None
    assert temps.shape == (2, 7, 3)
    assert temps.min() > 0
    if kind == "projection":
        normed = edges / (edges.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
        assert_close(temps, temperature((normed @ sharpener.project.weight.T).squeeze(-1)))
        nn.init.zeros_(sharpener.project.weight)
        temps = sharpener(edges)
        assert temps is not None
    # Untrained sharpeners leave addresses as they are; a fixed one says its value.
    assert_close(temps, torch.full_like(temps, value))
    if kind == "learned":  # one value per slot
        sharpener.values.data.copy_(torch.tensor([-1.0, 0.0, 2.0]))
        temps = sharpener(edges)
        assert temps is not None
        assert_close(temps[1, 4], temperature(torch.tensor([-1.0, 0.0, 2.0], dtype=F64)))
        with pytest.raises(ShapeError, match="k = 3"):
            sharpener(edges[:, :, :1])


def test_separate_roles_sharpen_once_for_each() -> None:
    """Finding n2 uses one sharpening, being collected as e2 the other (section 2.4)."""
    stack = make_stack(StackSizes(num_layers=1), edge={"separate_roles": True})
    state = make_state(batched(ring(7), 1))
    seen: dict[str, Tensor] = {}
    with listen(stack, lambda name, tensor: seen.update({name.rpartition(".")[2]: tensor})):
        edge_sublayer(stack)(state)
    for role in ("", "_e2"):
        expected = sharpen(dense(state), seen[f"sharpener_temps{role}"])
        assert_close(seen[f"address_ins{role}"], expected)
    outs = torch.einsum("bhnml,bmla->bnha", seen["e2_weights"], seen["address_ins_e2"])
    assert_close(seen["address_outs"], outs)
    mixed = torch.einsum("bhnk,bnkm->bhnm", seen["e1_weights"], seen["address_ins"])
    factors = mixed.clamp_min(1e-8).log() * seen["n2_edge_factor_temps"].unsqueeze(-1)
    assert_close(seen["n2_edge_factors"], factors)


# --- attention and referral -----------------------------------------------------------------


def shapes_of(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("factor_temps", [True, False])
@pytest.mark.parametrize("experts", ["both", "node", "edge"])
def test_experts_have_the_parameters_they_use(experts: Any, factor_temps: bool) -> None:
    attention = EdgeAugmentedAttention(
        d_node=12, d_edge=5, num_heads=2, d_key=4, d_value=3, experts=experts,
        factor_temps=factor_temps,
    )  # fmt: skip
    columns = 4 + 3 + (4 if experts != "edge" else 0)
    columns += factor_temps * (2 if experts == "both" else 1)
    edge_keys = 0 if experts == "node" else 5 * 2 * 4
    assert shapes_of(attention) == 12 * 2 * columns + edge_keys + 2 * 3 * 12
    referral = EdgeCentricReferral(
        d_node=12, d_edge=5, num_edges=3, d_key=4, experts=experts, factor_temps=factor_temps
    )
    columns = 4 + 5 + (4 if experts != "edge" else 0)
    columns += factor_temps * (3 if experts == "both" else 2)
    assert shapes_of(referral) == 12 * 3 * columns + 5 * 3 * (4 + 5 + 4 + 5) + 25


@pytest.mark.parametrize("experts", ["both", "node", "edge"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind: ReferralKind, experts: Any) -> None:
    """Two layers with a readout of nodes alone; the last edge sublayer reaches it by attention."""
    stack = make_stack(
        StackSizes(num_layers=2), kind=kind, edge={"experts": experts}, node={"experts": "both"}
    )
    out, _ = stack(make_state(batched(ring(7), 2)))
    out.node_features.square().sum().backward()
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None, name
        # The e1 keys of a node expert still choose e1 values.
        assert parameter.grad.abs().max() > 0, name


def test_the_edge_expert_ignores_node_keys() -> None:
    """Alone, edges decide: with hard edges at one node, everybody attends to it alone."""
    stack = make_stack(node={"experts": "edge"}, sharpener="off")
    state = make_state(torch.full((1, 7, 3), 4))
    seen: dict[str, Tensor] = {}
    with listen(stack, lambda name, tensor: seen.update({name: tensor})):
        node_sublayer(stack)(state)
    temps = seen["layers.0.node.0.edge_factor_temps"]
    # The six other nodes hold the clip's mass, 1e-8 each, before the temperature.
    assert_close(seen["layers.0.node.0.weights"][..., 4], 1 / (1 + 6 * 1e-8**temps))
    assert "layers.0.node.0.node_factors" not in seen


def test_rotary_turns_queries_and_node_keys_alone() -> None:
    """Against the projections by hand: n2 keys are turned, e1 keys are not."""
    angles = rotary_angles(2, 3, 4)
    plain, turned = (
        EdgeAugmentedAttention(d_node=12, d_edge=5, num_heads=2, d_key=4, rotary=rotary).double()
        for rotary in (None, angles.double())
    )
    turned.load_state_dict(plain.state_dict())
    nodes, edges = torch.randn(1, 6, 12, dtype=F64), torch.randn(1, 6, 3, 5, dtype=F64)
    before, after = (a.project(nodes, edges, Context()) for a in (plain, turned))
    assert before.n2_keys is not None
    assert after.n2_keys is not None
    assert_close(after.n1_queries, rotate(before.n1_queries, angles.double()))
    assert_close(after.n2_keys, rotate(before.n2_keys, angles.double()))
    assert_close(after.n2_values, before.n2_values)
    assert before.listed_e1_keys is not None
    assert after.listed_e1_keys is not None
    assert_close(after.listed_e1_keys, before.listed_e1_keys)


def test_qk_norm_adds_no_parameters_and_bounds_queries() -> None:
    plain, normed = (
        EdgeCentricReferral(d_node=12, d_edge=5, num_edges=3, d_key=4, qk_norm=on)
        for on in (False, True)
    )
    assert shapes_of(plain) == shapes_of(normed)
    inputs = normed.project(9 * torch.randn(1, 6, 12), torch.randn(1, 6, 3, 5), Context())
    rms = inputs.n1_queries.square().mean(dim=-1).sqrt()
    torch.testing.assert_close(rms, torch.ones_like(rms), rtol=1e-4, atol=1e-4)


# --- stacks ---------------------------------------------------------------------------------


def test_no_residual_means_new_features_alone() -> None:
    edge = edge_sublayer(make_stack(edge={"residual": False}))
    edge.ffn.down.weight.data.zero_()
    edge.referral.out.weight.data.zero_()
    out, _ = edge(make_state(batched(ring(7), 1)))
    assert edges_of(out).abs().max() == 0


def test_many_to_one_and_one_to_many() -> None:
    sizes: dict[str, Any] = {"d_node": 12, "d_edge": 5, "num_edges": 3, "d_key": 4}
    edges = [EdgeSublayer(**sizes) for _ in range(3)]
    nodes = [NodeSublayer(**sizes, num_heads=2) for _ in range(2)]
    stack = GraphMachineStack([Layer(edges, nodes[:1]), Layer(edge=(), node=nodes[1:])]).double()
    spread(stack, 0.3)
    state = make_state(batched(ring(7), 1))
    expected = state
    for sublayer in [*edges, *nodes]:
        expected, _ = sublayer(expected)
    out, entropies = stack(state, Context(entropies=True))
    assert_close(out.node_features, expected.node_features)
    assert all(entropy is not None and 0 <= entropy <= 1 for entropy in entropies)


def test_entropies_are_means_over_sublayers_and_absent_where_there_are_none() -> None:
    stack = make_stack(node={"experts": "node"})
    state = make_state(batched(ring(7), 2))
    out, entropies = stack(state, Context(entropies=True))
    assert entropies.attention_edge is None
    each = []
    for layer in stack.layers:
        state, referral, _ = layer(state, Context(entropies=True))
        each.append(referral[0].edge)
    assert entropies.referral_edge is not None
    assert_close(entropies.referral_edge, torch.stack(each).mean())
    assert all(entropy is None for entropy in stack(out)[1])


def test_recomputing_layers_changes_no_gradient() -> None:
    stack = make_stack()
    state = make_state(batched(ring(7), 2), top_s=3, gumbel_tau=0.5)

    def gradients() -> list[Tensor]:
        stack.zero_grad()
        torch.manual_seed(5)
        out, entropies = stack(state, Context(entropies=True, training=True))
        (out.node_features.square().mean() + sum(entropies)).backward()
        return [p.grad for p in stack.parameters() if p.grad is not None]

    plain = gradients()
    stack.checkpoint_layers = True
    for ours, expected in zip(gradients(), plain, strict=True):
        assert_close(ours, expected)


# --- input layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["none", "sinusoidal", "row-column"])
def test_node_input(position: Any) -> None:
    layer = NodeInput(num_tokens=10, d_node=8, num_positions=6, grid=(2, 3), position=position)
    tokens = torch.randint(10, (4, 6))
    assert layer.position is not None
    expected = layer.content.weight[tokens] + layer.position.weight
    if position == "sinusoidal":
        expected = expected + sinusoidal_positions(2, 3, 8, 10_000.0)
    if position == "row-column":
        assert layer.row is not None
        assert layer.col is not None
        row, col = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])
        expected = expected + layer.row.weight[row] + layer.col.weight[col]
    assert_close(layer(tokens), expected)


def test_node_input_without_places() -> None:
    layer = NodeInput(num_tokens=10, d_node=8)
    tokens = torch.randint(10, (2, 5))
    assert torch.equal(layer(tokens), layer.content.weight[tokens])
    with pytest.raises(ConfigError, match="grid"):
        NodeInput(num_tokens=10, d_node=8, position="sinusoidal")
    with pytest.raises(ShapeError, match="positions"):
        NodeInput(num_tokens=10, d_node=8, num_positions=6)(torch.zeros(2, 7).long())
    with pytest.raises(ShapeError, match="node features"):
        NodeInput(num_tokens=10, d_node=8, d_features=3)(torch.zeros(2, 7).long())


def test_edge_input() -> None:
    grid = grid_graph(2, 2, 6)
    layer = EdgeInput(d_edge=4, num_categories=6)
    assert layer.category is not None
    assert torch.equal(layer(grid), layer.category.weight[grid.categories])
    once, each = grid.expand(3), grid.expand(3).apply(Tensor.clone)  # looked up once, three times
    above = torch.randn(3, *layer(grid).shape)
    slopes = [torch.autograd.grad(layer(x), layer.category.weight, above)[0] for x in (once, each)]
    assert torch.equal(layer(once), layer(each))
    assert_close(*slopes)
    graph = graph_from_edge_index(
        torch.tensor([[0], [1]]), num_nodes=2, num_edges=2, edge_features=torch.ones(1, 3)
    )
    both = EdgeInput(d_edge=4, num_categories=3, d_features=3)
    assert both.category is not None
    assert both.project is not None
    expected = both.category.weight[graph.categories]
    expected[0, 1] += both.project.weight.sum(dim=-1)
    assert_close(both(graph), expected)
    with pytest.raises(ConfigError, match="num_categories"):
        EdgeInput(d_edge=4)
    with pytest.raises(ConfigError, match="edge features"):
        EdgeInput(d_edge=4, d_features=3)(grid)
    with pytest.raises(ConfigError, match="6 edge categories"):
        both(grid)
    # Fewer would be misread: `empty` is the last category.
    with pytest.raises(ConfigError, match="3 edge categories"):
        layer(graph)


def test_projected_edges() -> None:
    """Appendix C.1, edge by edge."""
    layer = ProjectedEdges(d_node=6, d_edge=4, expansion=2).double()
    state = make_state(batched(ring(5), 1), StackSizes(d_node=6, d_edge=4))
    out = layer(state.node_features, edges_of(state), dense(state))
    for node in range(5):
        total = state.node_features[0, node]
        for slot in range(3):
            target = dense(state)[0, node, slot] @ state.node_features[0]
            hidden = layer.up(torch.cat([target, edges_of(state)[0, node, slot]]))
            total = total + layer.down(nn.functional.silu(hidden))
        assert_close(out[0, node], total)


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": "bothe"}, "'both'"),
        ({"sharpener": "projecton"}, "'projection'"),
        ({"kind": "jont"}, "'joint'"),
    ],
)
def test_unknown_words_offer_the_nearest(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EdgeSublayer(d_node=8, **settings)
    if "kind" not in settings:
        with pytest.raises(ConfigError, match=message):
            NodeSublayer(d_node=8, **settings)


def test_edges_that_are_needed_and_absent_or_do_not_fit() -> None:
    stack = make_stack()
    edge, node = edge_sublayer(stack), node_sublayer(stack)
    bare = GraphState(torch.randn(1, 5, SMALL.d_node, dtype=F64))
    for sublayer in (edge, node):
        with pytest.raises(ShapeError, match=type(sublayer).__name__):
            sublayer(bare)
    state = make_state(torch.zeros(1, 5, 1).long())
    for given in ((), (edges_of(state),), (None, state.addresses)):
        with pytest.raises(ShapeError, match="'both'"):
            node.attention(state.node_features, *given)
    with pytest.raises(ShapeError, match="num_edges = 3"):  # one slot would broadcast to three
        edge(state)
    edge.residual = False
    assert edges_of(edge(state)[0]).shape == (1, 5, 3, SMALL.d_edge)
