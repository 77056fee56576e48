"""The fused backend equals the reference: outputs, every gradient, chunk by chunk."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops import backend, edge_centric_referral, native
from support.cases import KINDS, ODD, OPS, SIZES, Sizes, attention_case, masks, referral_case
from support.gradients import outputs_and_gradients
from tolerances import assert_close

pytestmark = pytest.mark.usefixtures("poisoned")
F32 = torch.float32
# From one source node at a time, over a few graphs at a time, to everything at once.
CHUNKS = (1, 300, 1 << 19)
# Widths beside the kernels' steps of 6, 8 and 16; k = 1; n = 1; more than one tile of rows.
SINGLE = (*SIZES, Sizes(b=3, h=2, n=17, k=5, d=8, v=8), Sizes(b=2, h=3, n=61, k=2, d=16, v=9))
each_op = pytest.mark.parametrize("op", OPS)


@pytest.fixture(params=["kernels", "torch", "float64"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """float32 on a CPU is for the C kernels, if they can be built; and for torch, if not."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    elif request.param == "kernels" and native.library() is None:
        pytest.skip("there is no C compiler here; with one, the kernels are tested")
    return torch.float64 if request.param == "float64" else F32


def compare(op: str, case: dict[str, Any], **settings: Any) -> None:
    function, _ = OPS[op]
    fused = outputs_and_gradients(function, case, backend="fused", **settings)
    reference = outputs_and_gradients(function, case, backend="reference", **settings)
    for name, expected in reference.items():
        assert_close(fused[name], expected, what=name)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "nowhere"])
@each_op
def test_masks(
    op: str, mask: str, dtype: torch.dtype, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CPU_CHUNK", chunk)
    compare(op, OPS[op][1](ODD, dtype), mask=masks(ODD)[mask])


@pytest.mark.parametrize("size", SINGLE, ids=lambda size: size.id)
@each_op
def test_sizes(op: str, size: Sizes, dtype: torch.dtype, threads: int) -> None:
    compare(op, OPS[op][1](size, dtype))


@pytest.mark.parametrize("absent", [("e1_keys", "e1_addresses"), ("n2_keys",)])
@pytest.mark.parametrize("temps", [True, False])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_attention_of_single_experts(
    absent: tuple[str, ...], temps: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CPU_CHUNK", chunk)
    case = {name: value for name, value in attention_case().items() if name not in absent}
    if not temps:
        case = {name: value for name, value in case.items() if not name.endswith("temps")}
    compare("attention", case)


def test_sharpen_at_hard_and_clipped_addresses() -> None:
    hard = torch.eye(7)[torch.randint(7, (2, 7, 3))]
    for addresses in (hard, hard.double(), torch.full((2, 7, 3, 7), 1e-8)):
        temps = 4 * torch.rand(2, 7, 3, dtype=addresses.dtype)
        compare("sharpen", {"addresses": addresses, "temps": temps})


def test_non_contiguous_inputs() -> None:
    turned = {n: x.transpose(0, 1).contiguous().transpose(0, 1) for n, x in referral_case().items()}
    compare("joint", turned)
    turned = {n: x.mT.contiguous().mT if x.ndim > 3 else x for n, x in attention_case().items()}
    compare("attention", turned)


@pytest.mark.parametrize("op", ["attention", "joint", "sharpen"])
def test_half_precision_inputs_are_computed_in_float32(op: str) -> None:
    """As layers hand them over under autocast; log-space work stays in float32."""
    function, make = OPS[op]
    half = {
        name: value if "addresses" in name or "temps" in name else value.bfloat16()
        for name, value in make(ODD, F32).items()
    }
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = outputs_and_gradients(function, half, backend="fused")
    exact = {name: value.float() for name, value in half.items()}
    for name, expected in outputs_and_gradients(function, exact, backend="reference").items():
        dtype = half[name.removeprefix("grad of ")].dtype if "grad" in name else F32
        assert_close(found[name].float(), expected, dtype=dtype, what=name)


@pytest.mark.parametrize("op", KINDS)
def test_second_derivative_is_a_clear_error(op: str) -> None:
    case = referral_case(Sizes(b=1, h=2, n=3, k=2, d=2, v=2))
    queries = case["n1_queries"].requires_grad_()
    features, _ = OPS[op][0](**case, backend="fused")
    (grad,) = torch.autograd.grad(features.square().sum(), queries, create_graph=True)
    with pytest.raises(ConfigError, match="derivative"):
        torch.autograd.grad(grad.sum(), queries)


def test_no_grad_keeps_nothing() -> None:
    case = referral_case()
    case["n1_queries"].requires_grad_()
    with torch.no_grad():
        outs = edge_centric_referral(**case, backend="fused")
    assert all(out.grad_fn is None for out in outs)


@pytest.mark.parametrize("pick", [0, 1])
def test_unused_outputs_pass_no_gradient(pick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the addresses, or only the features, are used."""

    def op(**arguments: Any) -> Tensor:
        return edge_centric_referral(**arguments)[pick]

    monkeypatch.setitem(OPS, "joint", (op, referral_case))
    compare("joint", referral_case())
