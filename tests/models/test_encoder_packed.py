"""Graphs of different sizes without padding: what the reference computes with padding."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine import GraphEncoder
from graph_machine.models.encoder_input import packs
from graph_machine.nn import listen
from graph_machine.ops.native import library
from support.cases import spread

SIZES = [1, 5, 40, 17, 3, 120, 8]
# One of them has work memory that a larger one would not need: its tiles are larger.
UNEVEN = [200, 120]
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "joint": {"referral": "joint"},
    "conditional": {"referral": "conditional"},
    "every layer": {"num_edge_sublayers": 3},
    "edge ends": {"edge_ends": True},
    "roles": {"separate_roles": True, "num_edge_sublayers": 2},
    "no empty edge": {"empty_edge": False},
    "no edge values": {"edge_values": False},
    "core": {"recurrent": 2},
    "no referral": {"num_edge_sublayers": 0},
    "edge expert": {"attention_experts": "edge", "referral_experts": "edge"},
    "node expert in referral": {"referral_experts": "node"},
    "positions": {"num_positions": 200},
    "odd widths": {"d_node": 20, "d_edge": 6, "num_heads": 3, "num_edges": 5},
    "edge features": {"d_edge_in": 2},
    "global heads": {"d_node": 24, "num_heads": 3, "global_heads": 2, "num_edge_sublayers": 2},
    "learned sharpener": {"sharpener": "learned", "num_edge_sublayers": 2},
}


def graphs(sizes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """x, edge_index, batch: some nodes without edges, some edges twice, some self-loops."""
    edges, first = [], 0
    for n in sizes:
        edges.append(torch.randint(n, (2, 2 * n)) + first)
        first += n
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.randn(first, 5), torch.cat(edges, dim=1), batch


def make(**settings: Any) -> GraphEncoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_in": 5, "d_node": 16, "num_layers": 3, "num_heads": 2}
    sizes |= {"batch_norm": False, **settings}
    encoder = GraphEncoder(**sizes)
    spread(encoder, 0.3)
    return encoder


def found(encoder: GraphEncoder, given: tuple[Tensor | None, ...], above: Tensor) -> list[Tensor]:
    """The result, and gradients of the loss that has this slope."""
    encoder.zero_grad()
    out = encoder(*given)
    (out * above.to(out.dtype)).sum().backward()
    every = (x.new_zeros(()) if x.grad is None else x.grad for x in encoder.parameters())
    return [out.detach(), *every]


def assert_alike(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Equal but for rounding, measured by the largest entry of each tensor."""
    for own, exact in zip(actual, expected, strict=True):
        size = max(1e-3, float(exact.abs().max()))
        torch.testing.assert_close(own.double() / size, exact / size, rtol=0, atol=3e-4)


@pytest.mark.skipif(library() is None, reason="no C kernels here; a C compiler makes them")
@pytest.mark.parametrize("name", SETTINGS)
def test_equals_the_padded_reference(name: str, poisoned: None) -> None:
    encoder, (x, edge_index, batch) = make(**SETTINGS[name]), graphs(SIZES)
    attr = torch.randn(edge_index.shape[1], 2) if name == "edge features" else None
    assert packs(encoder, SIZES)
    above = torch.randn(len(x), encoder.config.d_node)
    exact = copy.deepcopy(encoder).double()
    exact.backend = "reference"
    assert not packs(exact, SIZES)
    wide = None if attr is None else attr.double()
    expected = found(exact, (x.double(), edge_index, wide, batch), above)
    assert_alike(found(encoder, (x, edge_index, attr, batch), above), expected)


@pytest.mark.skipif(library() is None, reason="no C kernels here; a C compiler makes them")
@pytest.mark.parametrize("referral", ["preaggregated", "joint"])
def test_threads_and_uneven_graphs(referral: str, threads: int, poisoned: None) -> None:
    encoder, (x, edge_index, batch) = make(referral=referral, num_layers=1), graphs(UNEVEN)
    exact = copy.deepcopy(encoder).double()
    exact.backend = "reference"
    above = torch.randn(len(x), 16)
    expected = found(exact, (x.double(), edge_index, None, batch), above)
    assert_alike(found(encoder, (x, edge_index, None, batch), above), expected)


@pytest.mark.skipif(library() is None, reason="no C kernels here; a C compiler makes them")
def test_the_same_edges_come_out() -> None:
    encoder, (x, edge_index, batch) = make().eval(), graphs([3, 9, 5])
    packed = encoder.encode(x, edge_index, None, batch, top=4)
    encoder.backend = "reference"
    padded = encoder.encode(x, edge_index, None, batch, top=4)
    assert torch.equal(torch.as_tensor(packed.edge_targets), torch.as_tensor(padded.edge_targets))
    torch.testing.assert_close(packed.edge_weights, padded.edge_weights, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed.edge_features, padded.edge_features, rtol=1e-4, atol=1e-5)


def test_where_graphs_are_padded() -> None:
    """Other dtypes, listeners, one padded batch, settings that kernels do not know."""
    encoder = make()
    with listen(encoder, lambda path, tensor: None):
        assert not packs(encoder, SIZES)
    assert not packs(encoder, [100_000])
    for settings in ({"padding": None}, {"given_edges": "first"}, {"address_space": "sparse"}):
        assert not packs(make(**settings), SIZES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not packs(encoder, SIZES)
    encoder.backend = "reference"
    assert not packs(encoder, SIZES)
