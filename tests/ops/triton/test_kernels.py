"""Triton kernels equal the reference in outputs and every gradient.

Without a GPU they run in Triton's interpreter (tests/conftest.py switches it on): slow, so shapes
are tiny and cases few. With one, the same tests run the compiled kernels (`make gpu-test`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.ops import backend, edge_augmented_attention, edge_centric_referral
from graph_machine.ops.attention import attend
from graph_machine.ops.backend import implementations
from graph_machine.ops.core import LEARNED, KernelInputs, KernelOuts
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.referral import refer
from support.cases import (
    Sizes,
    attention_case,
    masks,
    random_addresses,
    random_temps,
    referral_case,
)
from support.gradients import outputs_and_gradients
from tolerances import assert_close

pytest.importorskip("triton", reason="triton is not installed; with the extra 'gpu', it is tested")
pytestmark = pytest.mark.gpu_too

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32 = torch.float32
# Two tiles of 16 along every axis, the second with one entry; and one tile that is far from full.
TILES = Sizes(b=1, h=2, n=17, k=3, d=5, v=6)
SMALL = Sizes(b=2, h=2, n=5, k=2, d=3, v=4)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels or nothing, in small tiles; fresh memory is NaN, so that a gap shows."""
    from graph_machine.ops.triton import launch

    monkeypatch.setitem(backend.ORDER, DEVICE, ("triton",))
    monkeypatch.setattr(launch, "BLOCKS", launch.Blocks(n=16, m=16, a=16, a_inner=16, a_sources=16))
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def compare(op: Any, case: dict[str, Any], **settings: Any) -> None:
    """Kernels beside the reference in float64, from the same numbers.

    Judged against the largest entry: gradients of addresses are divided by their small masses.
    """
    case = {name: tensor.to(DEVICE) for name, tensor in case.items()}
    found = outputs_and_gradients(op, case, backend="fused", **settings)
    exact = {name: tensor.double() for name, tensor in case.items()}
    expected = outputs_and_gradients(op, exact, backend="reference", **settings)
    for name, value in expected.items():
        scale = max(1.0, *value.abs().flatten().tolist(), 0.0)
        assert_close(found[name].double() / scale, value / scale, dtype=F32, what=name)


@pytest.mark.parametrize(
    ("size", "mask"),
    [(TILES, "causal"), (SMALL, "nowhere"), (Sizes(b=1, h=1, n=1, k=1, d=1, v=1), "none")],
    ids=["tiles", "nowhere", "one"],
)
def test_attention(size: Sizes, mask: str) -> None:
    allowed = masks(size)[mask]
    compare(
        edge_augmented_attention,
        attention_case(size, F32),
        mask=None if allowed is None else allowed.to(DEVICE),
    )


@pytest.mark.parametrize("absent", ["edge", "node"])
def test_attention_of_single_experts(absent: str) -> None:
    """Without temperatures, too."""
    gone = {"edge": ("e1_keys", "e1_addresses"), "node": ("n2_keys",)}[absent]
    case = attention_case(SMALL, F32)
    kept = {k: v for k, v in case.items() if k not in gone and not k.endswith("temps")}
    compare(edge_augmented_attention, kept)


@pytest.mark.parametrize(
    ("size", "kind", "mask"),
    [
        (replace(TILES, k=2), "joint", "none"),
        (SMALL, "joint", "nowhere"),
        (replace(TILES, k=2), "conditional", "padding"),
        (SMALL, "conditional", "nowhere"),
        (TILES, "preaggregated", "padding"),
        (SMALL, "preaggregated", "causal"),
    ],
    ids=lambda value: "" if isinstance(value, Sizes) else value,
)
def test_referral(size: Sizes, kind: str, mask: str) -> None:
    """Keys and values given per head, as the listing has them."""
    allowed = masks(size)[mask]
    compare(
        edge_centric_referral,
        referral_case(size, F32),
        kind=kind,
        mask=None if allowed is None else allowed.to(DEVICE),
    )


def seen(mask: Tensor | None, tensors: dict[str, Any]) -> Tensor | None:
    """The nodes that any other may see."""
    return None if mask is None else mask.any(dim=-2).expand(tensors["n1_queries"].shape[0], -1)


def layer_attention(backend: Any, mask: Tensor | None, **tensors: Any) -> tuple[Tensor, ...]:
    inputs = AttentionInputs(**tensors, mask=mask, sources=seen(mask, tensors), entropies=True)
    outs, found = attend(inputs, backend=backend)
    return tuple(x for x in (outs, found.edge, found.node) if x is not None)


def layer_referral(
    backend: Any, mask: Tensor | None, kind: Any, **tensors: Any
) -> tuple[Tensor, ...]:
    sources = seen(mask, tensors)
    inputs = ReferralInputs(**tensors, kind=kind, mask=mask, sources=sources, entropies=True)
    features, addresses, found = refer(inputs, backend=backend)
    return tuple(x for x in (features, addresses, found.edge, found.node) if x is not None)


def layer_case(size: Sizes, kind: str | None, beside: int = 0) -> dict[str, Any]:
    """Inputs as a layer hands them over: edge features and what projects them.

    `beside` counts edges without a row of addresses.
    """
    b, h, n, k, d, e = size.b, size.h, size.n, size.k, size.d, size.v
    case: dict[str, Any] = {
        "n1_queries": torch.randn(b, h, n, d),
        "n2_values": torch.randn(b, h, n, e),
        "n2_keys": torch.randn(b, h, n, d),
        "e1_addresses": random_addresses(b, n, k, n, dtype=F32),
        "e1_key_weights": torch.randn(h, d, e),
    }
    if kind is None:
        temps = ("edge_factor_temps", "node_factor_temps")
        case["e1_features"] = torch.randn(b, n, k + beside, e)
    else:
        temps = ("n2_edge_factor_temps", "n2_node_factor_temps", "e2_factor_temps")
        case |= {
            "edge_features": torch.randn(b, n, k + beside, e),
            "e2_addresses": random_addresses(b, n, k, n, dtype=F32),
            "e2_key_weights": torch.randn(h, d, e),
            "e1_value_weights": torch.randn(h, e, e),
            "e2_value_weights": torch.randn(h, e, e),
        }
    return case | {name: random_temps(b, h, n, dtype=F32) for name in temps}


KINDS = (None, "joint", "conditional", "preaggregated")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", ["none", "padding"])
def test_layers_with_entropies(kind: str | None, mask: str) -> None:
    """Edge features shared by all heads, and the gradients of the entropy losses."""
    op = layer_attention if kind is None else layer_referral
    settings: dict[str, Any] = {} if kind is None else {"kind": kind}
    allowed = masks(SMALL)[mask]
    settings["mask"] = None if allowed is None else allowed.to(DEVICE)
    compare(op, layer_case(SMALL, kind), **settings)


def given_targets(size: Sizes, degree: int) -> Tensor:
    """Multi-edges, loops and edges to masked nodes; a node without any edge."""
    targets = torch.randint(size.n, (size.b, size.n, degree), device=DEVICE)
    targets[torch.rand(targets.shape, device=DEVICE) < 0.4] = -1
    targets[:, 0] = -1
    return targets


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("size", "mask", "degree", "empty"),
    [
        (replace(TILES, h=1, k=1), "padding", 1, True),
        (SMALL, "causal", 3, True),
        (replace(SMALL, b=1), "nowhere", 3, False),
        (replace(SMALL, h=1), "none", 0, True),
        (replace(SMALL, b=1, k=0), "causal", 3, True),
    ],
    ids=["tiles", "causal", "nowhere", "only-empty", "before-referral"],
)
def test_given_edges_and_the_empty_edge(
    kind: str | None, size: Sizes, mask: str, degree: int, empty: bool
) -> None:
    targets = given_targets(size, degree) if degree else None
    allowed = masks(size)[mask]
    settings: dict[str, Any] = {"given_targets": targets, "empty_edge": empty}
    settings["mask"] = None if allowed is None else allowed.to(DEVICE)
    op = layer_attention if kind is None else layer_referral
    settings |= {} if kind is None else {"kind": kind}
    compare(op, layer_case(size, kind, beside=degree + empty), **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_given_edges_among_logits(kind: str | None) -> None:
    settings: dict[str, Any] = {"given_targets": given_targets(SMALL, 3), "empty_edge": True}
    settings |= {"mask": None, "logit_space": True, "given_scale": 5.0}
    op = layer_attention if kind is None else layer_referral
    case = layer_case(SMALL, kind, beside=4)
    for name in ("e1_addresses", "e2_addresses"):
        if name in case:
            case[name] = torch.randn_like(case[name])
    compare(op, case, **settings if kind is None else {"kind": kind, **settings})


def test_logit_space() -> None:
    def op(backend: Any, **tensors: Any) -> Tensor:
        return attend(AttentionInputs(**tensors, logit_space=True), backend=backend)[0]

    case = layer_case(SMALL, None)
    case["e1_addresses"] = torch.randn_like(case["e1_addresses"])
    compare(op, case)


def test_clipped_addresses_pass_no_gradient() -> None:
    case = layer_case(SMALL, None)
    hard = torch.eye(SMALL.n)[torch.randint(SMALL.n, case["e1_addresses"].shape[:-1])]
    compare(layer_attention, case | {"e1_addresses": hard}, mask=None)


def test_fixed_edges_over_rounds() -> None:
    """The recurrent core: the same addresses in every round, queries from the round before."""

    def op(backend: Any, **tensors: Any) -> Tensor:
        for _ in range(2):
            outs = attend(AttentionInputs(**tensors), backend=backend)[0]
            tensors |= {"n1_queries": outs[..., : SMALL.d]}
        return outs

    compare(op, layer_case(SMALL, None))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["attention", "referral"])
def test_half_inputs_are_summed_in_float32(op: str, dtype: torch.dtype) -> None:
    """Outputs are as exact as in float32; gradients come in the dtype of their inputs."""
    case = attend_inputs(SMALL) if op == "attention" else refer_inputs(SMALL)
    half = mapped(case, lambda x: x.to(dtype))
    kernels, torch_code = (implementations("attend")[name] for name in ("triton", "torch"))
    exact = mapped(half, lambda x: x.double())
    outs, expected = kernels.forward(half), torch_code.forward(exact)
    for name in ("features", "e2", "addresses", "entropies"):
        assert_close(getattr(outs, name).double(), getattr(expected, name), dtype=F32)
    grads = KernelOuts(*(torch.randn_like(out) for out in expected))
    found = kernels.backward(half, outs, KernelOuts(*(grad.float() for grad in grads)))
    expected_grads = torch_code.backward(exact, expected, grads)
    for name, grad, value in zip(KernelInputs._fields[:LEARNED], found, expected_grads):
        assert (grad is None) == (value is None)
        if value is not None:
            assert grad.dtype == dtype
            scale = value.abs().max().clamp_min(1.0)
            assert_close(grad.double() / scale, value / scale, dtype=torch.bfloat16, what=name)


def mapped(x: KernelInputs, function: Callable[[Tensor], Tensor]) -> KernelInputs:
    return KernelInputs(*(function(y) if isinstance(y, Tensor) else y for y in x))  # type: ignore[arg-type]


def attend_inputs(size: Sizes) -> KernelInputs:
    b, h, n, k, d = size.b, size.h, size.n, size.k, size.d
    return KernelInputs(
        n2_values=torch.randn(b, h, n, size.v, device=DEVICE),
        n1_queries=torch.randn(b, h, n, d, device=DEVICE),
        n2_keys=torch.randn(b, h, n, d, device=DEVICE),
        e1_weights=random_addresses(b, n, h, k, dtype=F32).to(DEVICE),
        e1_addresses=random_addresses(b, n, k, n, dtype=F32).to(DEVICE),
        edge_temps=random_temps(b, n, h, dtype=F32).to(DEVICE),
        entropy_weights=torch.rand(b, n, device=DEVICE),
        eps=1e-4,  # one that differs from 0 in half precision
    )


def refer_inputs(size: Sizes) -> KernelInputs:
    b, h, n, k, e = size.b, size.h, size.n, size.k, size.v
    return attend_inputs(size)._replace(
        e2_queries=torch.randn(b, n, h, e, device=DEVICE),
        e2_keys=torch.randn(b, 1, n, k, e, device=DEVICE),
        e2_values=torch.randn(b, 1, n, k, e, device=DEVICE),
        e2_addresses=random_addresses(b, n, k, n, dtype=F32).to(DEVICE),
    )
