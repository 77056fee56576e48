"""Taps: named as the docs list them, harmless, able to intervene, gone afterwards."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.nn import EdgeSublayer, GraphMachineStack, Layer, NodeSublayer, listen
from graph_machine.ops.referral import ReferralKind
from graph_machine.state import GraphState
from support.cases import (
    KINDS,
    SMALL,
    batched,
    dense,
    edge_sublayer,
    edges_of,
    make_stack,
    make_state,
    ring,
)
from tolerances import assert_close

EDGE_NAMES = {
    "sharpener_temps", "address_ins", "n2_edge_factor_temps", "n2_node_factor_temps",
    "e2_factor_temps", "e1_weights", "n2_edge_factors", "n2_node_factors", "e2_factors",
    "e2_weights", "n2_weights", "address_outs", "feature_outs", "n2_values",
}  # fmt: skip
NODE_NAMES = {
    "sharpener_temps", "address_ins", "edge_factor_temps", "node_factor_temps", "e1_weights",
    "edge_factors", "node_factors", "weights", "n2_values", "node_features",
}  # fmt: skip


def record(stack: GraphMachineStack, state: GraphState) -> tuple[GraphState, dict[str, Tensor]]:
    seen: dict[str, Tensor] = {}

    def listener(name: str, tensor: Tensor) -> None:
        assert name not in seen, f"{name} was reported twice"
        seen[name] = tensor

    with listen(stack, listener):
        out, _ = stack(state)
    return out, seen


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_shapes(kind: ReferralKind) -> None:
    stack, state = make_stack(kind=kind), make_state(batched(ring(7), 2))
    _, seen = record(stack, state)
    edge_names = EDGE_NAMES
    if kind == "preaggregated":
        edge_names = EDGE_NAMES - {"e2_weights"} | {"e2_own_weights"}
    expected = {f"layers.{i}.edge.0.{name}" for i in range(3) for name in edge_names}
    expected |= {f"layers.{i}.node.0.{name}" for i in range(3) for name in NODE_NAMES}
    assert seen.keys() == expected
    b, n, k, h = 2, 7, 3, 2
    assert seen["layers.2.edge.0.n2_weights"].shape == (b, k, n, n)
    assert seen["layers.2.edge.0.address_outs"].shape == (b, n, k, n)
    assert seen["layers.2.edge.0.sharpener_temps"].shape == (b, n, k)
    assert seen["layers.2.node.0.weights"].shape == (b, h, n, n)
    assert seen["layers.2.node.0.edge_factor_temps"].shape == (b, h, n)
    if kind != "preaggregated":
        assert seen["layers.2.edge.0.e2_weights"].shape == (b, k, n, n, k)


def test_several_sublayers_in_a_row_have_paths_of_their_own() -> None:
    sizes = {"d_node": 8, "d_edge": 4, "num_edges": 3, "d_key": 4}
    layer = Layer(
        [EdgeSublayer(**sizes, separate_roles=True), EdgeSublayer(**sizes)],
        [NodeSublayer(**sizes, num_heads=2), NodeSublayer(**sizes, num_heads=2, experts="node")],
    )
    state = GraphState(torch.randn(1, 5, 8), torch.randn(1, 5, 3, 4))
    state = state.replace(addresses=make_state(batched(ring(5), 1)).addresses)
    addresses = dense(state).float()
    assert state.addresses is not None
    state = state.replace(addresses=state.addresses.with_dense(addresses))
    _, seen = record(GraphMachineStack([layer]), state)
    prefixes = {name.rpartition(".")[0] for name in seen}
    assert prefixes == {f"layers.0.{room}.{i}" for room in ("edge", "node") for i in (0, 1)}
    assert "layers.0.edge.0.address_ins_e2" in seen
    assert "layers.0.edge.0.sharpener_temps_e2" in seen
    assert "layers.0.node.1.edge_factors" not in seen


def names_of(heard: torch.nn.Module, run: torch.nn.Module) -> list[str]:
    names: list[str] = []
    with listen(heard, lambda name, _: names.append(name)):
        run(make_state(batched(ring(7), 1)))
    return names


def test_names_do_not_depend_on_where_the_stack_lives() -> None:
    stack = make_stack()
    whole = names_of(torch.nn.ModuleDict({"body": stack}), stack)
    assert whole[0].startswith("layers.0.edge.0.")
    two = names_of(torch.nn.ModuleDict({"first": stack, "second": make_stack()}), stack)
    assert two[0].startswith("first.layers.0.edge.0.")
    assert set(names_of(edge_sublayer(stack), edge_sublayer(stack))) == EDGE_NAMES  # a lone one


@pytest.mark.parametrize("kind", KINDS)
def test_listening_changes_no_output_and_leaves_nothing_behind(kind: ReferralKind) -> None:
    stack, state = make_stack(kind=kind), make_state(batched(ring(7), 2))
    silent, _ = stack(state)
    heard, _ = record(stack, state)
    assert_close(heard.node_features, silent.node_features)
    assert_close(edges_of(heard), edges_of(silent))
    assert_close(dense(heard), dense(silent))

    def fail(name: str, tensor: Tensor) -> None:
        raise RuntimeError(name)

    with pytest.raises(RuntimeError, match=r"layers\.0\.edge\.0\.sharpener_temps"):  # noqa: SIM117
        with listen(stack, fail):
            stack(state)
    for module in stack.modules():
        assert getattr(module, "tap", None) is None
        assert "tap" not in vars(module) or vars(module)["tap"] is None
    assert torch.equal(stack(state)[0].node_features, silent.node_features)


def test_listeners_nest() -> None:
    """The inner listener takes over and gives back."""
    stack, state = make_stack(), make_state(batched(ring(7), 1))
    outer: list[str] = []
    inner: list[str] = []
    with listen(stack, lambda name, _: outer.append(name)):
        with listen(stack, lambda name, _: inner.append(name)):
            stack(state)
        assert not outer
        stack(state)
    assert outer == inner


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_weights_reproduce_the_outputs(kind: ReferralKind) -> None:
    stack, state = make_stack(kind=kind), make_state(batched(ring(7), 2))
    _, seen = record(stack, state)
    edge = {name.rpartition(".")[2]: t for name, t in seen.items() if "layers.1.edge" in name}
    if kind == "preaggregated":
        e2 = torch.einsum("bhnm,bhml->bhnml", edge["n2_weights"], edge["e2_own_weights"])
    else:
        e2 = edge["e2_weights"]
    assert_close(e2.sum(dim=-1), edge["n2_weights"])
    outs = torch.einsum("bhnml,bmla->bnha", e2, edge["address_ins"])
    assert_close(outs, edge["address_outs"])
    node = {name.rpartition(".")[2]: t for name, t in seen.items() if "layers.1.node" in name}
    logits = node["edge_factors"] + node["node_factors"]
    assert_close(logits.softmax(dim=-1), node["weights"])
    mixed = torch.einsum("bhnk,bnkm->bhnm", node["e1_weights"], node["address_ins"])
    expected = mixed.clamp_min(1e-8).log() * node["edge_factor_temps"].unsqueeze(-1)
    assert_close(node["edge_factors"], expected)
    temps = node["sharpener_temps"].unsqueeze(-1)
    powers = edge["address_outs"].clamp_min(1e-8) ** temps
    assert_close(node["address_ins"], powers / powers.sum(dim=-1, keepdim=True))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "name",
    [f"layers.1.edge.0.{name}" for name in sorted(EDGE_NAMES)]
    + [f"layers.1.node.0.{name}" for name in sorted(NODE_NAMES)],
)
def test_a_listener_can_replace_every_tensor(name: str) -> None:
    """What a listener returns is what the layer goes on with."""
    stack, state = make_stack(), make_state(batched(ring(7), 2))
    before, _ = stack(state)

    def shifted(tensor: Tensor) -> Tensor:
        # Another value of the same kind: rows rolled along the nodes.
        by_node = ("address", "sharpener", "node_features")
        return tensor.roll(1, dims=1 if any(word in name for word in by_node) else 2)

    with listen(stack, lambda n, tensor: shifted(tensor) if n == name else None):
        out, _ = stack(state)
    assert torch.isfinite(out.node_features).all()
    assert (out.node_features - before.node_features).abs().max() > 1e-6


def test_replaced_addresses_in_logit_space() -> None:
    stack, state = make_stack(), make_state(batched(ring(7), 1), space="logit")
    uniform = torch.full((1, 7, 3, 7), 1 / 7, dtype=torch.float64)
    name = "layers.2.edge.0.address_outs"
    with listen(stack, lambda n, _: uniform if n == name else None):
        out, _ = stack(state)
    assert_close(dense(out), uniform)


def hand(space: str, kind: ReferralKind) -> tuple[GraphMachineStack, GraphState]:
    """A stack over addresses that are not dense; the sparse ones are cut where they can be."""
    cut: dict[str, dict[str, Any]] = {
        "sparse": {"s": 3, "chains": 4},
        "compressed": {"c": 6, "d_node": SMALL.d_node},
    }
    sharpener = "off" if space == "hard" else "projection"
    stack = make_stack(kind=kind, dtype=torch.float32, sharpener=sharpener).eval()
    settings = cut.get(space, {})
    given = batched(ring(7), 2)
    return stack, make_state(given, dtype=torch.float32, space=space, **settings)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("space", "kind"),
    [
        ("sparse", "joint"),
        ("sparse", "preaggregated"),
        ("compressed", "joint"),
        ("compressed", "preaggregated"),
        ("hard", "joint"),  # hard addresses cannot be mixed, so they have no pre-aggregation
    ],
)
def test_no_space_drops_an_intervention(space: str, kind: ReferralKind) -> None:
    """Whatever a space reports, replacing it changes the outcome (or is refused by name)."""
    stack, state = hand(space, kind)
    before, seen = record(stack, state)
    plain, _ = stack(state)
    assert_close(before.node_features, plain.node_features)
    paths = [path for path in seen if path.startswith("layers.1.") and "address" not in path]
    assert any(path.endswith("n2_node_factors") for path in paths)
    for path in paths:

        def changed(name: str, tensor: Tensor, path: str = path) -> Tensor | None:
            if name != path:
                return None
            # Tilted along the last axis; weights that are 0 stay so.
            tilt = torch.linspace(0.1, 3, tensor.shape[-1])
            return tensor * tilt if "weights" in path else tensor + tilt

        with listen(stack, changed):
            out, _ = stack(state)
        moved = (out.node_features - before.node_features).abs().max()
        moved = max(moved, (edges_of(out) - edges_of(before)).abs().max())
        assert moved > 1e-3, path


def test_weight_outside_of_the_chosen_chains_is_refused() -> None:
    stack, state = hand("sparse", "joint")
    name = "layers.1.edge.0.e2_weights"
    with (
        pytest.raises(ConfigError, match="e2_weights"),
        listen(stack, lambda n, tensor: torch.ones_like(tensor) if n == name else None),
    ):
        stack(state)


@pytest.mark.usefixtures("unchecked")
def test_a_callback_returns_a_tensor_or_none() -> None:
    stack, state = make_stack(), make_state(batched(ring(7), 1))
    with listen(stack, lambda name, tensor: "text"), pytest.raises(ConfigError, match="str"):  # type: ignore[arg-type]
        stack(state)
