"""What attention and referral by kernels share: between the cores' dataclasses and `launch.py`."""

from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.core import FactorInputs


def precision() -> str:
    """How float32 numbers are multiplied: as they are, or rounded to tf32 if torch may do so.

    Halves are multiplied exactly in either case; sums are float32.
    """
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def node_major(heads: Tensor | None) -> Tensor | None:
    """(b, h, n, d) as (b, n, h, d), contiguous: projections lie so already."""
    return None if heads is None else heads.transpose(1, 2).contiguous()


def whole(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def factors(x: FactorInputs) -> dict[str, Any]:
    """The part of the kernels' inputs that attention and referral share."""
    return {
        "e1_weights": whole(x.e1_weights),
        "addresses": whole(x.e1_addresses),
        "edge_temps": whole(x.edge_temps),
        "queries": node_major(x.n1_queries),
        "keys": node_major(x.n2_keys),
        "mask": None if x.mask is None else x.mask.contiguous().view(torch.uint8),
        "entropies": x.entropy_weights is not None,
        "logit_space": x.logit_space,
        "eps": x.eps,
    }


def weighted_entropies(x: FactorInputs, stats: Tensor) -> Tensor:
    """The two weighted sums over rows, from the entropies that the kernel left in `stats`."""
    found = [stats.new_zeros(()), stats.new_zeros(())]
    if x.entropy_weights is not None:
        for i, present in enumerate((x.edge, x.node)):
            if present:
                found[i] = (stats[..., 2 + 2 * i].sum(dim=1) * x.entropy_weights).sum()
    return torch.stack(found)


def entropy_rows(x: FactorInputs, grads: Tensor | None) -> Tensor | None:
    """Gradients of every row's two entropies, (2, b, n)."""
    if x.entropy_weights is None:
        return None
    b, _, n, _ = x.sizes
    above = x.entropy_weights.new_zeros(2) if grads is None else grads
    return (above[:, None, None] * x.entropy_weights.expand(b, n)).contiguous()


def deltas(*pairs: tuple[Tensor, Tensor]) -> Tensor:
    """Sum of outputs times their gradients, from (b, n, h, width) to (b, h, n)."""
    found = [(out * grad).sum(dim=-1) for out, grad in pairs]
    return torch.stack(found).sum(dim=0).transpose(1, 2).contiguous()


def slot_grads(x: FactorInputs, mixed: Tensor | None) -> dict[str, Any]:
    """Gradients of e1 weights and addresses from that of the mixture, (b, n, h, m)."""
    if mixed is None or x.e1_weights is None or x.e1_addresses is None:
        return {"e1_weights": None, "e1_addresses": None}
    weights, addresses = x.e1_weights.to(mixed.dtype), x.e1_addresses.to(mixed.dtype)
    return {
        "e1_weights": torch.matmul(mixed, addresses.mT).to(x.e1_weights.dtype),
        "e1_addresses": torch.matmul(weights.mT, mixed).to(x.e1_addresses.dtype),
    }


def like(tensor: Tensor | None, grad: Tensor | None, *, heads_first: bool = False) -> Any:
    """A gradient in the dtype and the order of axes of its tensor; None for an absent one."""
    if tensor is None or grad is None:
        return None
    return (grad.transpose(1, 2) if heads_first else grad).to(tensor.dtype)
