"""Tiny cases that many tests share: op inputs on odd shapes, small stacks and their states."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graph_machine.graphs import InputGraph, graph_from_edge_index
from graph_machine.nn import EdgeSublayer, GraphMachineStack, Layer, NodeSublayer
from graph_machine.ops import edge_augmented_attention, edge_centric_referral, native, sharpen
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import SPACES
from graph_machine.state import GraphState, Visibility

KINDS: tuple[ReferralKind, ...] = ("joint", "conditional", "preaggregated")
needs_kernels = pytest.mark.skipif(
    native.library() is None, reason="there is no C compiler here; with one, it is tested"
)


@dataclass(frozen=True)
class Sizes:
    """Odd on purpose: no two axes alike, so that a swapped axis is an error."""

    b: int = 2
    h: int = 4
    n: int = 7
    k: int = 3
    d: int = 5
    v: int = 6

    @property
    def id(self) -> str:
        return f"b{self.b}h{self.h}n{self.n}k{self.k}d{self.d}v{self.v}"


ODD = Sizes()
# The last ones are the limits: one node, one slot, one head.
SIZES = (ODD, Sizes(b=1, h=1, n=5, k=2, d=3, v=1), Sizes(n=1), Sizes(k=1, h=1))


def random_addresses(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (2 * torch.randn(*shape, dtype=dtype)).softmax(dim=-1)


def random_temps(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 0.25 + 2 * torch.rand(*shape, dtype=dtype)


def attention_case(size: Sizes = ODD, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Every tensor argument of `edge_augmented_attention`, by name."""
    b, h, n, k, d = size.b, size.h, size.n, size.k, size.d
    return {
        "n1_queries": torch.randn(b, h, n, d, dtype=dtype),
        "edge_factor_temps": random_temps(b, h, n, dtype=dtype),
        "node_factor_temps": random_temps(b, h, n, dtype=dtype),
        "e1_keys": torch.randn(b, h, n, k, d, dtype=dtype),
        "e1_addresses": random_addresses(b, n, k, n, dtype=dtype),
        "n2_keys": torch.randn(b, h, n, d, dtype=dtype),
        "n2_values": torch.randn(b, h, n, size.v, dtype=dtype),
    }


def referral_case(size: Sizes = ODD, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Every tensor argument of `edge_centric_referral`, by name."""
    b, h, n, k, d, e = size.b, size.h, size.n, size.k, size.d, size.v
    return {
        "n1_queries": torch.randn(b, h, n, d, dtype=dtype),
        "n2_edge_factor_temps": random_temps(b, h, n, dtype=dtype),
        "n2_node_factor_temps": random_temps(b, h, n, dtype=dtype),
        "e2_factor_temps": random_temps(b, h, n, dtype=dtype),
        "e1_keys": torch.randn(b, h, n, k, d, dtype=dtype),
        "e1_values": torch.randn(b, h, n, k, e, dtype=dtype),
        "e1_addresses": random_addresses(b, n, k, n, dtype=dtype),
        "n2_keys": torch.randn(b, h, n, d, dtype=dtype),
        "n2_values": torch.randn(b, h, n, e, dtype=dtype),
        "e2_keys": torch.randn(b, h, n, k, d, dtype=dtype),
        "e2_values": torch.randn(b, h, n, k, e, dtype=dtype),
        "e2_addresses": random_addresses(b, n, k, n, dtype=dtype),
    }


def sharpen_case(size: Sizes = ODD, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Every tensor argument of `sharpen`, by name."""
    b, n, k = size.b, size.n, size.k
    addresses = random_addresses(b, n, k, n, dtype=dtype)
    return {"addresses": addresses, "temps": 3 * torch.rand(b, n, k, dtype=dtype)}


# Name -> the op, and what makes its inputs.
OPS: dict[str, tuple[Callable[..., Any], Callable[..., dict[str, Any]]]] = {
    "attention": (edge_augmented_attention, attention_case),
    **{kind: (partial(edge_centric_referral, kind=kind), referral_case) for kind in KINDS},
    "sharpen": (sharpen, sharpen_case),
}
LISTED = ("attention", *KINDS)  # those of the paper's listings


def masks(size: Sizes) -> dict[str, Tensor | None]:
    """None, padding, the past, and one with a source that may look nowhere."""
    n = size.n
    nowhere = torch.rand(size.b, n, n) > 0.5
    nowhere[:, n // 2] = False
    return {
        "none": None,
        "padding": (torch.arange(n) < max(1, n - 2)).expand(size.b, 1, n),
        "causal": torch.ones(n, n, dtype=torch.bool).tril()[None],
        "nowhere": nowhere,
    }


@dataclass(frozen=True)
class StackSizes:
    d_node: int = 12
    d_edge: int = 5
    num_edges: int = 3
    num_heads: int = 2
    d_key: int = 4
    d_value: int = 3
    num_layers: int = 3


SMALL = StackSizes()


def make_stack(
    size: StackSizes = SMALL,
    *,
    kind: ReferralKind = "joint",
    dtype: torch.dtype = torch.float64,
    weight_scale: float = 0.35,
    edge: dict[str, Any] | None = None,
    node: dict[str, Any] | None = None,
    **shared: Any,
) -> GraphMachineStack:
    """A small Graph Machine with weights large enough that every path matters."""
    common: dict[str, Any] = {
        "d_node": size.d_node,
        "d_edge": size.d_edge,
        "num_edges": size.num_edges,
    }
    common |= {"d_key": size.d_key, "expansion": 2} | shared
    layers = [
        Layer(
            edge=[EdgeSublayer(**common, kind=kind, **(edge or {}))],
            node=[
                NodeSublayer(
                    **common, num_heads=size.num_heads, d_value=size.d_value, **(node or {})
                )
            ],
        )
        for _ in range(size.num_layers)
    ]
    stack = GraphMachineStack(layers).to(dtype)
    spread(stack, weight_scale)
    return stack


@torch.no_grad()
def spread(module: nn.Module, scale: float) -> None:
    """Random weights everywhere: no parameter is left at a value that hides a mistake."""
    for name, parameter in module.named_parameters():
        noise = torch.randn_like(parameter)
        if parameter.ndim == 1:
            parameter.copy_(1.0 + 0.3 * noise if "norm" in name else 0.5 * noise)
        else:
            parameter.copy_(scale * noise)


def ring(num_nodes: int, num_edges: int = 3) -> InputGraph:
    """Self, then the next node around a ring; further slots are empty."""
    nodes = torch.arange(num_nodes)
    edges = torch.stack([nodes, (nodes + 1) % num_nodes])
    return graph_from_edge_index(edges, num_nodes=num_nodes, num_edges=num_edges)


def batched(graph: InputGraph, batch: int) -> Tensor:
    """The graph's targets for a whole batch."""
    return graph.targets.expand(batch, *graph.targets.shape)


def make_state(
    targets: Tensor,
    size: StackSizes = SMALL,
    *,
    visibility: Visibility = Visibility(),
    space: str = "weight",
    dtype: torch.dtype = torch.float64,
    **settings: Any,
) -> GraphState:
    """Random features over input targets (b, n, k)."""
    b, n, k = targets.shape
    nodes = torch.randn(b, n, size.d_node, dtype=dtype)
    addresses = SPACES[space](**settings).initial(targets, nodes, visibility)
    return GraphState(
        node_features=nodes,
        edge_features=torch.randn(b, n, k, size.d_edge, dtype=dtype),
        addresses=addresses,
        visibility=visibility,
    )


def dense(state: GraphState) -> Tensor:
    """The state's addresses as weights."""
    assert state.addresses is not None
    return state.addresses.to_dense()


def edges_of(state: GraphState) -> Tensor:
    assert state.edge_features is not None
    return state.edge_features


def edge_sublayer(stack: GraphMachineStack, layer: int = 0) -> EdgeSublayer:
    sublayer = list(stack.layers)[layer].get_submodule("edge.0")
    assert isinstance(sublayer, EdgeSublayer)
    return sublayer


def node_sublayer(stack: GraphMachineStack, layer: int = 0) -> NodeSublayer:
    sublayer = list(stack.layers)[layer].get_submodule("node.0")
    assert isinstance(sublayer, NodeSublayer)
    return sublayer
