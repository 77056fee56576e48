"""Layers on the fused backend equal layers on the reference: state, entropies, every gradient."""

from typing import Any

import pytest
import torch

from graph_machine.nn import GraphMachineStack
from graph_machine.ops import backend
from graph_machine.state import GraphState, Visibility
from support.cases import KINDS, StackSizes, batched, make_stack, make_state, ring
from support.gradients import assert_same, stack_gradients

N = 7


def visibility(name: str) -> Visibility:
    if name == "padding":
        mask = torch.ones(2, N, dtype=torch.bool)
        mask[1, 5:] = False
        return Visibility(node_mask=mask)
    return Visibility(causal=name == "causal")


def compare(stack: GraphMachineStack, state: GraphState) -> None:
    fused, reference = (
        stack_gradients(stack, state, backend=word) for word in ("fused", "reference")
    )
    assert_same(fused, reference)


@pytest.mark.parametrize("seen", ["all", "padding", "causal"])
@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_equal_reference(kind: Any, space: str, seen: str) -> None:
    state = make_state(batched(ring(N), 2), space=space, visibility=visibility(seen))
    compare(make_stack(kind=kind), state)


SETTINGS: list[dict[str, Any]] = [
    {"factor_temps": False},
    {"experts": "edge"},
    {"edge": {"experts": "node"}},
    {"qk_norm": True},
    {"edge": {"separate_roles": True}},
    {"sharpener": "off"},
    {"node": {"edge_values": True}},
    {"node": {"global_heads": 1}},
    {"sharpener": "learned", "edge": {"residual": False}},
    {"rotary": torch.rand(N, 2)},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS, ids="-".join)
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


@pytest.mark.parametrize("settings", SETTINGS[:-1], ids="-".join)
def test_float32_settings(settings: dict[str, Any]) -> None:
    stack = make_stack(WIDE, dtype=torch.float32, weight_scale=0.2, **settings)
    compare(stack, make_state(batched(ring(N), 2), WIDE, dtype=torch.float32))
