"""The fused backend equals the reference: outputs, every gradient, chunk by chunk."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops import (
    backend,
    edge_augmented_attention,
    edge_centric_referral,
    native,
    sharpen,
)
from graph_machine.ops.referral import ReferralKind
from support.cases import KINDS, ODD, SIZES, Sizes, attention_case, random_addresses, referral_case
from tolerances import assert_close

# From one source node at a time, over a few graphs at a time, to everything at once.
CHUNKS = (1, 300, 1 << 19)


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Fresh memory is NaN, so that an unwritten entry shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["kernels", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """float32 on a CPU is for the C kernels, if they can be built; and for torch, if not."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("there is no C compiler here; with one, the kernels are tested")
    return request.param


@pytest.fixture(params=CHUNKS, ids=lambda size: f"chunk{size}")
def chunk_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(backend, "CPU_CHUNK", request.param)
    return request.param


def run(op: Callable[..., Any], case: dict[str, Any], **settings: Any) -> dict[str, Tensor]:
    """Outputs and gradients of a random weighting of all outputs, by name."""
    leaves = {
        name: value.detach().clone().requires_grad_()
        for name, value in case.items()
        if isinstance(value, Tensor)
    }
    outs = op(**(case | leaves), **settings)
    outs = (outs,) if isinstance(outs, Tensor) else outs
    torch.manual_seed(1)
    total: Any = sum((out * torch.randn(out.shape).to(out)).sum() for out in outs)
    found = {f"out{i}": out.detach() for i, out in enumerate(outs)}
    names = list(leaves)
    grads = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)
    for name, grad in zip(names, grads):
        found[f"grad of {name}"] = torch.zeros_like(leaves[name]) if grad is None else grad
    return found


def compare(op: Callable[..., Any], case: dict[str, Any], **settings: Any) -> None:
    fused = run(op, case, backend="fused", **settings)
    reference = run(op, case, backend="reference", **settings)
    for name, expected in reference.items():
        assert_close(fused[name], expected, what=name)


def masks(size: Sizes) -> dict[str, Tensor | None]:
    n = size.n
    keep = torch.rand(size.b, 1, n) > 0.3
    keep[..., 0] = True
    nowhere = torch.rand(size.b, n, n) > 0.5
    nowhere[:, n // 2] = False  # one source that may look nowhere
    return {
        "none": None,
        "padding": keep,
        "causal": torch.ones(n, n, dtype=torch.bool).tril()[None],
        "nowhere": nowhere,
    }


@pytest.mark.parametrize("mask", ["none", "padding", "causal", "nowhere"])
@pytest.mark.parametrize("kind", KINDS)
def test_referral_equals_reference(kind: ReferralKind, mask: str, chunk_size: int) -> None:
    compare(edge_centric_referral, referral_case(), kind=kind, mask=masks(ODD)[mask])


@pytest.mark.parametrize("size", SIZES[1:], ids=lambda size: size.id)
@pytest.mark.parametrize("kind", KINDS)
def test_referral_limits(kind: ReferralKind, size: Sizes) -> None:
    compare(edge_centric_referral, referral_case(size), kind=kind)


# Widths beside the kernels' steps of 6, 8 and 16; k = 1; n = 1; more than one tile of rows.
SINGLE = (*SIZES, Sizes(b=3, h=2, n=17, k=5, d=8, v=8), Sizes(b=2, h=3, n=61, k=2, d=16, v=9))


@pytest.mark.parametrize("size", SINGLE, ids=lambda size: size.id)
@pytest.mark.parametrize("kind", KINDS)
def test_referral_float32(kind: ReferralKind, size: Sizes, engine: str) -> None:
    compare(edge_centric_referral, referral_case(size, torch.float32), kind=kind)


@pytest.mark.parametrize("mask", ["none", "padding", "causal", "nowhere"])
@pytest.mark.parametrize("op", ["referral", "attention", "sharpen"])
def test_float32_masks(op: str, mask: str, engine: str, chunk_size: int) -> None:
    if op == "referral":
        case, function = referral_case(dtype=torch.float32), edge_centric_referral
    elif op == "attention":
        case, function = attention_case(dtype=torch.float32), edge_augmented_attention
    else:
        case = {"addresses": random_addresses(2, 7, 3, 7).float(), "temps": torch.rand(2, 7, 3)}
        function = sharpen
    compare(function, case, mask=masks(ODD)[mask])


@pytest.mark.parametrize("size", SINGLE, ids=lambda size: size.id)
def test_attention_float32(size: Sizes, engine: str) -> None:
    compare(edge_augmented_attention, attention_case(size, torch.float32))


@pytest.mark.parametrize("mask", ["none", "padding", "causal", "nowhere"])
def test_attention_equals_reference(mask: str, chunk_size: int) -> None:
    compare(edge_augmented_attention, attention_case(), mask=masks(ODD)[mask])


@pytest.mark.parametrize("size", SIZES[1:], ids=lambda size: size.id)
def test_attention_limits(size: Sizes) -> None:
    compare(edge_augmented_attention, attention_case(size))


@pytest.mark.parametrize("absent", [("e1_keys", "e1_addresses"), ("n2_keys",)])
@pytest.mark.parametrize("temps", [True, False])
def test_attention_single_experts(absent: tuple[str, ...], temps: bool, chunk_size: int) -> None:
    case = {name: value for name, value in attention_case().items() if name not in absent}
    if not temps:
        case = {name: value for name, value in case.items() if not name.endswith("temps")}
    compare(edge_augmented_attention, case)


@pytest.mark.parametrize("mask", ["none", "padding", "causal", "nowhere"])
def test_sharpen_equals_reference(mask: str, chunk_size: int) -> None:
    case = {"addresses": random_addresses(2, 7, 3, 7), "temps": 3 * torch.rand(2, 7, 3).double()}
    compare(sharpen, case, mask=masks(ODD)[mask])


def test_sharpen_at_hard_and_clipped_addresses() -> None:
    hard = torch.eye(7)[torch.randint(7, (2, 7, 3))]
    for addresses in (hard, hard.double(), torch.full((2, 7, 3, 7), 1e-8)):
        temps = 4 * torch.rand(2, 7, 3, dtype=addresses.dtype)
        compare(sharpen, {"addresses": addresses, "temps": temps})


def test_non_contiguous_inputs() -> None:
    case = {
        name: value.transpose(0, 1).contiguous().transpose(0, 1)
        for name, value in referral_case().items()
    }
    compare(edge_centric_referral, case)
    case = {
        name: value.mT.contiguous().mT if value.ndim > 3 else value
        for name, value in attention_case().items()
    }
    compare(edge_augmented_attention, case)


@pytest.mark.parametrize("op", ["attention", "referral", "sharpen"])
def test_half_precision_inputs_are_computed_in_float32(op: str) -> None:
    """As layers hand them over under autocast; log-space work stays in float32."""
    if op == "attention":
        case, function = attention_case(dtype=torch.float32), edge_augmented_attention
    elif op == "referral":
        case, function = referral_case(dtype=torch.float32), edge_centric_referral
    else:
        case = {"addresses": random_addresses(2, 7, 3, 7).float(), "temps": torch.rand(2, 7, 3)}
        function = sharpen
    half = {
        name: value if "addresses" in name or "temps" in name else value.bfloat16()
        for name, value in case.items()
    }
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = run(function, half, backend="fused")
    exact = run(function, {n: v.float() for n, v in half.items()}, backend="reference")
    for name, expected in exact.items():
        dtype = half[name.removeprefix("grad of ")].dtype if "grad" in name else torch.float32
        assert_close(found[name].float(), expected, dtype=dtype, what=name)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivative_is_a_clear_error(kind: ReferralKind) -> None:
    case = referral_case(Sizes(b=1, h=2, n=3, k=2, d=2, v=2))
    queries = case["n1_queries"].requires_grad_()
    features, _ = edge_centric_referral(**case, kind=kind, backend="fused")
    (grad,) = torch.autograd.grad(features.square().sum(), queries, create_graph=True)
    with pytest.raises(ConfigError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), queries)


def test_no_grad_keeps_nothing() -> None:
    case = referral_case()
    case["n1_queries"].requires_grad_()
    with torch.no_grad():
        features, addresses = edge_centric_referral(**case, backend="fused")
    assert features.grad_fn is None
    assert addresses.grad_fn is None


def test_unused_outputs_pass_no_gradient() -> None:
    """Only the addresses, or only the features, are used."""
    for pick in (0, 1):

        def op(pick: int = pick, **arguments: Any) -> Tensor:
            return edge_centric_referral(**arguments)[pick]

        compare(op, referral_case())


def test_unknown_backend_is_an_error(unchecked: None) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'fused'"):
        edge_augmented_attention(**attention_case(), backend="fusd")  # type: ignore[arg-type]
