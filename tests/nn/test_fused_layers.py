"""Layers on the fused backend equal layers on the reference: state, entropies, every gradient."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.nn import GraphMachineStack, listen
from graph_machine.ops import backend
from graph_machine.ops.backend import Backend
from graph_machine.spaces import Context
from graph_machine.state import GraphState, Visibility
from support.cases import KINDS, StackSizes, batched, dense, edges_of, make_stack, make_state, ring
from support.shell import script
from tolerances import assert_close

N = 7


def visibility(name: str) -> Visibility:
    if name == "padding":
        mask = torch.ones(2, N, dtype=torch.bool)
        mask[1, 5:] = False
        return Visibility(node_mask=mask)
    return Visibility(causal=name == "causal")


def run(stack: GraphMachineStack, state: GraphState, backend: Backend) -> dict[str, Tensor]:
    stack.zero_grad()
    nodes = state.node_features.detach().clone().requires_grad_()
    edges = edges_of(state).detach().clone().requires_grad_()
    out, entropies = stack(
        state.replace(node_features=nodes, edge_features=edges),
        Context(backend=backend, entropies=True),
    )
    found = {"nodes": out.node_features, "edges": edges_of(out), "addresses": dense(out)}
    found |= {name: value for name, value in entropies._asdict().items() if value is not None}
    torch.manual_seed(1)
    total = sum((value * torch.randn(value.shape).to(value)).sum() for value in found.values())
    assert isinstance(total, Tensor)
    total.backward()
    for name, parameter in [*stack.named_parameters(), ("nodes", nodes), ("edges", edges)]:
        assert parameter.grad is not None, name
        found[f"grad of {name}"] = parameter.grad.clone()
    return {name: value.detach() for name, value in found.items()}


def compare(stack: GraphMachineStack, state: GraphState) -> None:
    reference = run(stack, state, "reference")
    fused = run(stack, state, "fused")
    for name, expected in reference.items():
        assert_close(fused[name], expected, what=name)


@pytest.mark.parametrize("seen", ["all", "padding", "causal"])
@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_equal_reference(kind: Any, space: str, seen: str) -> None:
    state = make_state(batched(ring(N), 2), space=space, visibility=visibility(seen))
    compare(make_stack(kind=kind), state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings",
    [
        {"factor_temps": False},
        {"experts": "edge"},
        {"edge": {"experts": "node"}},
        {"qk_norm": True},
        {"rotary": torch.rand(N, 2, dtype=torch.float64)},
        {"edge": {"separate_roles": True}},
        {"sharpener": "off"},
        {"node": {"edge_values": True}},
        {"sharpener": "learned", "edge": {"residual": False}},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_settings_equal_reference(kind: Any, settings: dict[str, Any]) -> None:
    compare(make_stack(kind=kind, **settings), make_state(batched(ring(N), 2)))


@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_small_chunks(kind: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source nodes of one graph in several chunks, as for large n; causal, so masks are cut too."""
    monkeypatch.setattr(backend, "CPU_CHUNK", size)
    state = make_state(batched(ring(N), 2), visibility=visibility("causal"))
    compare(make_stack(kind=kind), state)


def test_top_s_equals_reference() -> None:
    compare(make_stack(), make_state(batched(ring(N), 2), top_s=3))


def test_float32_and_batch_one() -> None:
    stack = make_stack(dtype=torch.float32, weight_scale=0.2)
    compare(stack, make_state(batched(ring(N), 1), dtype=torch.float32))


# Widths that the C kernels of the parts around attention and referral serve.
WIDE = StackSizes(d_node=16, d_edge=8, num_edges=3, num_heads=2, d_key=8, d_value=8, num_layers=1)


@pytest.mark.parametrize("seen", ["all", "padding", "causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_float32_kernels(kind: Any, seen: str) -> None:
    stack = make_stack(WIDE, kind=kind, dtype=torch.float32, weight_scale=0.2)
    shape = batched(ring(N), 2)
    compare(stack, make_state(shape, WIDE, dtype=torch.float32, visibility=visibility(seen)))


@pytest.mark.parametrize(
    "settings",
    [
        {"factor_temps": False},
        {"experts": "edge"},
        {"edge": {"experts": "node"}},
        {"node": {"edge_values": True}},
        {"qk_norm": True},
        {"edge": {"separate_roles": True}},
        {"sharpener": "learned", "edge": {"residual": False}},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_float32_settings(settings: dict[str, Any]) -> None:
    stack = make_stack(WIDE, dtype=torch.float32, weight_scale=0.2, **settings)
    compare(stack, make_state(batched(ring(N), 2), WIDE, dtype=torch.float32))


def test_a_listener_gets_the_stages() -> None:
    """Fused paths have none, so listening takes the staged path, with equal results."""
    stack, state = make_stack(), make_state(batched(ring(N), 2))
    seen: list[str] = []
    with torch.no_grad():
        silent = stack(state, Context(backend="fused"))[0]
        with listen(stack, lambda name, _: seen.append(name)):
            heard = stack(state, Context(backend="fused"))[0]
    assert "layers.0.edge.0.e2_weights" in seen
    assert_close(heard.node_features, silent.node_features)


# In a process of its own: the shape checker of the test run cannot be compiled.
COMPILED = """
import torch
from support.cases import batched, make_stack, make_state, ring
from tolerances import assert_close
from graph_machine.spaces import Context

for kind in ("joint", "preaggregated"):
    torch.manual_seed(0)
    layer = make_stack(kind=kind, dtype=torch.float32).layers[0]
    state = make_state(batched(ring(7), 2), dtype=torch.float32)

    def run(module):
        layer.zero_grad()
        out, (referral,), (attention,) = module(state, Context(backend="fused", entropies=True))
        found = [out.node_features, out.edge_features, out.addresses.values]
        sum((part * part).mean() for part in (*found, *referral, *attention)).backward()
        return found + [parameter.grad.clone() for parameter in layer.parameters()]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for actual, expected in zip(run(compiled), run(layer)):
        assert_close(actual, expected)
    print(kind, "equal")
"""


@pytest.mark.slow
def test_compiled_layers_equal_eager_ones() -> None:
    """`torch.compile(fullgraph=True)` takes the fused operators as they are (only traced)."""
    assert script(COMPILED).split() == ["joint", "equal", "preaggregated", "equal"]
