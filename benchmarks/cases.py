"""What is compared: one training step (forward and backward) of a layer or an op, several ways.

`reference` is the paper's listing as it stands, `reference-untuned` the same in a process without
our CPU settings (`graph_machine.machine`), `fused` the fast path, `compiled` and
`compiled-fused` the same under `torch.compile`, `transformer` a Transformer layer of the same
width in plain PyTorch, `without-edges` a node sublayer that uses none, `sdpa` torch's attention
with a given bias, and `floor` the necessary products only.
"""

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.floor import referral_floor
from benchmarks.scale import TransformerLayer
from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.nn import EdgeSublayer, GraphMachineStack, Layer, NodeSublayer
from graph_machine.nn.sublayers import PreparedEdges
from graph_machine.ops import edge_augmented_attention, edge_centric_referral, sharpen
from graph_machine.ops.backend import Backend
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Context, DenseAddresses
from graph_machine.state import GraphState

D_NODE, D_EDGE, HEADS, WIDTH = 64, 8, 8, 8  # the paper's sizes
PREPARING = ("edge_norm", "sharpener")  # parameters that prepared edges need no more
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One row of the benchmark."""

    op: str
    n: int = 81
    k: int = 8
    batch: int = 64
    compiled: bool = False  # also both paths under torch.compile (takes about a minute)
    untuned: bool = False  # also the reference in a process with the system's own settings

    @property
    def name(self) -> str:
        return f"{self.op} n={self.n} k={self.k} b={self.batch}{' compiled' * self.compiled}"


@dataclass(frozen=True)
class Contest:
    """A built case: `run` returns outputs and gradients by name, `steps` are the contestants."""

    run: Callable[[Backend], dict[str, Tensor]]
    steps: dict[str, Step]


@functools.cache
def _own_cache() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="graph-machine-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def compile_afresh() -> Path:
    """Give torch.compile a cache folder of this process's own, removed when the process ends.

    What other processes left in the shared one may be damaged, and would hide the compile time.
    """
    folder = _own_cache()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    return folder


def _addresses(*shape: int) -> Tensor:
    return (2 * torch.randn(*shape)).softmax(dim=-1)


def _subject(
    function: Callable[[Backend], tuple[Tensor, ...]],
    leaves: dict[str, Tensor],
    compiled: Callable[[Backend], tuple[Tensor, ...]] | None = None,
) -> Contest:
    """From a function of a backend to steps that take all gradients of a fixed weighting."""
    with torch.no_grad():
        weights = [torch.randn(out.shape) for out in function("fused")]

    def step(outs: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        for leaf in leaves.values():
            leaf.grad = None
        found = outs()
        torch.autograd.backward(found, weights)
        return found

    def run(backend: Backend) -> dict[str, Tensor]:
        outs = {f"out{i}": o.detach() for i, o in enumerate(step(lambda: function(backend)))}
        grads = {f"grad of {name}": leaf.grad for name, leaf in leaves.items()}
        return outs | {name: grad.clone() for name, grad in grads.items() if grad is not None}

    steps: dict[str, Step] = {
        "reference": lambda: step(lambda: function("reference")),
        "fused": lambda: step(lambda: function("fused")),
    }
    if compiled is not None:
        steps["compiled"] = lambda: step(lambda: compiled("reference"))
        steps["compiled-fused"] = lambda: step(lambda: compiled("fused"))
    return Contest(run, steps)


def _layer(case: Case, kind: ReferralKind, entropies: bool, num_layers: int = 1) -> Contest:
    b, n, k = case.batch, case.n, case.k
    stack = GraphMachineStack(
        Layer(
            [EdgeSublayer(d_node=D_NODE, d_edge=D_EDGE, num_edges=k, kind=kind)],
            [NodeSublayer(d_node=D_NODE, d_edge=D_EDGE, num_edges=k, num_heads=HEADS)],
        )
        for _ in range(num_layers)
    )
    nodes = torch.randn(b, n, D_NODE, requires_grad=True)
    edges = torch.randn(b, n, k, D_EDGE, requires_grad=True)
    addresses = _addresses(b, n, k, n).requires_grad_()

    def function(backend: Backend, call: Callable[..., Any] = stack) -> tuple[Tensor, ...]:
        state = GraphState(nodes, edges, DenseAddresses(addresses))
        new, found_entropies = call(state, Context(backend=backend, entropies=entropies))
        assert new.edge_features is not None
        assert isinstance(new.addresses, DenseAddresses)
        found = (new.node_features, new.edge_features, new.addresses.values)
        return found + tuple(value for value in found_entropies if value is not None)

    leaves = {"nodes": nodes, "edges": edges, "addresses": addresses}
    compiled = None
    if case.compiled:
        compile_afresh()
        traced = torch.compile(stack, fullgraph=True)
        compiled = lambda backend: function(backend, traced)  # noqa: E731
    subject = _subject(function, leaves | dict(stack.named_parameters()), compiled)
    transformer, weights = TransformerLayer(), torch.randn(b, n, D_NODE)
    subject.steps["transformer"] = lambda: transformer(nodes).backward(weights)
    return subject


def _core_layer(case: Case) -> Contest:
    """A node sublayer whose edges are fixed and prepared, beside one without edges (our kernels
    too) and a Transformer layer."""
    b, n, k = case.batch, case.n, case.k
    sizes: dict[str, Any] = {"d_node": D_NODE, "num_heads": HEADS, "qk_norm": True}
    layer = NodeSublayer(d_edge=D_EDGE, num_edges=k, **sizes)
    edgeless = NodeSublayer(experts="node", **sizes)
    nodes = torch.randn(b, n, D_NODE, requires_grad=True)
    edges = torch.randn(b, n, k, D_EDGE, requires_grad=True)
    addresses = _addresses(b, n, k, n).requires_grad_()
    fixed = PreparedEdges(edges, DenseAddresses(addresses))
    state = GraphState(nodes, edges, fixed.addresses)

    def function(backend: Backend) -> tuple[Tensor, ...]:
        return (layer(state, Context(backend=backend), fixed)[0].node_features,)

    leaves = {"nodes": nodes, "edges": edges, "addresses": addresses}
    used = {name: p for name, p in layer.named_parameters() if not name.startswith(PREPARING)}
    subject, weights = _subject(function, leaves | used), torch.randn(b, n, D_NODE)
    alone, plain = GraphState(nodes), TransformerLayer()
    subject.steps["transformer"] = lambda: plain(nodes).backward(weights)
    subject.steps["without-edges"] = lambda: edgeless(alone)[0].node_features.backward(weights)
    return subject


def _referral(case: Case) -> Contest:
    b, n, k, h = case.batch, case.n, case.k, case.k

    def heads(*shape: int) -> Tensor:
        return torch.randn(b, h, n, *shape)

    arguments = {
        "n1_queries": heads(WIDTH),
        "n2_edge_factor_temps": heads().abs(),
        "n2_node_factor_temps": heads().abs(),
        "e2_factor_temps": heads().abs(),
        "e1_keys": heads(k, WIDTH),
        "e1_values": heads(k, D_EDGE),
        "e1_addresses": _addresses(b, n, k, n),
        "n2_keys": heads(WIDTH),
        "n2_values": heads(D_EDGE),
        "e2_keys": heads(k, WIDTH),
        "e2_values": heads(k, D_EDGE),
        "e2_addresses": _addresses(b, n, k, n),
    }
    for value in arguments.values():
        value.requires_grad_()
    subject = _subject(lambda x: edge_centric_referral(**arguments, backend=x), arguments)
    subject.steps["floor"] = referral_floor(b, n, k, WIDTH, D_EDGE)
    return subject


def _attention(case: Case) -> Contest:
    b, n, k, h = case.batch, case.n, case.k, HEADS
    arguments = {
        "n1_queries": torch.randn(b, h, n, WIDTH),
        "edge_factor_temps": torch.rand(b, h, n),
        "node_factor_temps": torch.rand(b, h, n),
        "e1_keys": torch.randn(b, h, n, k, WIDTH),
        "e1_addresses": _addresses(b, n, k, n),
        "n2_keys": torch.randn(b, h, n, WIDTH),
        "n2_values": torch.randn(b, h, n, WIDTH),
    }
    for value in arguments.values():
        value.requires_grad_()
    subject = _subject(lambda x: (edge_augmented_attention(**arguments, backend=x),), arguments)
    # A bias that is given but learned, as ours is: its gradient is part of the step.
    bias = torch.randn(b, h, n, n, requires_grad=True)
    weights = torch.randn(b, h, n, WIDTH)

    def sdpa() -> None:
        bias.grad = None
        functional.scaled_dot_product_attention(
            arguments["n1_queries"], arguments["n2_keys"], arguments["n2_values"], attn_mask=bias
        ).backward(weights)

    subject.steps["sdpa"] = sdpa
    return subject


def _sharpen(case: Case) -> Contest:
    addresses = _addresses(case.batch, case.n, case.k, case.n).requires_grad_()
    temps = (2 * torch.rand(case.batch, case.n, case.k)).requires_grad_()
    leaves = {"addresses": addresses, "temps": temps}
    return _subject(lambda x: (sharpen(addresses, temps, backend=x),), leaves)


OPS: dict[str, Callable[[Case], Contest]] = {
    "layer": lambda case: _layer(case, "joint", True),
    "layer-without-entropies": lambda case: _layer(case, "joint", False),
    "layer-conditional": lambda case: _layer(case, "conditional", True),
    "layer-preaggregated": lambda case: _layer(case, "preaggregated", True),
    "stack-of-32": lambda case: _layer(case, "joint", True, 32),
    "core-layer": _core_layer,
    "referral": _referral,
    "attention": _attention,
    "sharpen": _sharpen,
}


def build(case: Case) -> Contest:
    if case.op not in OPS:
        raise ConfigError(
            f"bench: unknown case '{case.op}'.{did_you_mean(case.op, OPS)} Known: {', '.join(OPS)}."
        )
    torch.manual_seed(0)
    return OPS[case.op](case)
