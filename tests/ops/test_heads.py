"""Heads of a projection: the kernel equals torch in outputs and the gradient."""

import pytest
import torch
from torch import Tensor

from graph_machine.ops import native
from graph_machine.ops.rows import split_heads

WIDTHS = {"queries": 8, "values": 16, "keys": 8, "node_temps": 1, "edge_temps": 1}
needs_kernels = pytest.mark.skipif(
    native.library() is None, reason="there is no C compiler here; with one, it is tested"
)


def run(base: Tensor, heads: int, kind: str, qk_norm: bool, fused: bool) -> dict[str, Tensor]:
    x = base.detach().clone().requires_grad_()
    parts = split_heads(
        x, heads, WIDTHS, temperature_kind=kind, qk_norm=qk_norm, eps=1e-6, fused=fused
    )
    torch.manual_seed(1)
    used = [part for name, part in parts.items() if name != "edge_temps"]  # one has no gradient
    torch.autograd.backward(used, [torch.randn(part.shape).to(part) for part in used])
    assert x.grad is not None
    return parts | {"grad": x.grad}


@needs_kernels
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("kind", ["softplus", "exp"])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_the_kernel_equals_torch(heads: int, kind: str, qk_norm: bool) -> None:
    torch.use_deterministic_algorithms(True)  # fresh memory is NaN
    try:
        base = 3 * torch.randn(2, 5, heads * sum(WIDTHS.values()))
        ends = 30.0 if kind == "softplus" else 8.0
        base[0, 0, -2 * heads :] = torch.linspace(-ends, ends, 2 * heads)
        found = run(base, heads, kind, qk_norm, fused=True)
        expected = run(base.double(), heads, kind, qk_norm, fused=False)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found["queries"].shape == (2, heads, 5, 8)
    assert found["node_temps"].shape == (2, heads, 5)
    for name, value in expected.items():
        # Tiny temperatures keep their digits, as log1p would.
        torch.testing.assert_close(
            found[name].double(), value, rtol=2e-5, atol=1e-5 * (name == "grad")
        )


def test_widths_that_are_not_served_take_torch() -> None:
    parts = split_heads(
        torch.randn(1, 3, 2 * 12),
        2,
        {"queries": 6, "keys": 6},
        temperature_kind="softplus",
        qk_norm=True,
        eps=1e-6,
        fused=True,
    )
    for part in parts.values():
        torch.testing.assert_close(part.square().mean(dim=-1), torch.ones(1, 2, 3))
