"""Attention and referral by kernels: between the cores' tuples and `launch.py`.

In pre-aggregated referral every n2 offers one mixed edge per head: a second pair of queries and
keys, and an address beside the value. The mixed addresses are a matrix product, in both passes.
"""

from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.core import KernelInputs, KernelOuts
from graph_machine.ops.triton.launch import Above, Inputs, plan_backward, plan_forward


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


def kernel_inputs(x: KernelInputs) -> Inputs:
    values, addresses = node_major(x.n2_values), whole(x.e2_addresses)
    assert values is not None
    if x.own_weights is not None and x.e2_addresses is not None:
        addresses = torch.matmul(x.own_weights.float(), x.e2_addresses.float())  # b m h a
    return Inputs(
        e1_weights=whole(x.e1_weights),
        addresses=whole(x.e1_addresses),
        edge_temps=whole(x.edge_temps),
        queries=node_major(x.n1_queries),
        keys=node_major(x.n2_keys),
        values=values,
        e2_queries=whole(x.e2_queries),
        e2_keys=whole(x.e2_keys),
        e2_values=whole(x.e2_values),
        e2_addresses=addresses,
        mask=None if x.mask is None else x.mask.contiguous().view(torch.uint8),
        own=x.own_weights is not None,
        entropies=x.entropy_weights is not None,
        logit_space=x.logit_space,
        eps=x.eps,
    )


def forward(x: KernelInputs) -> KernelOuts:
    plan = plan_forward(kernel_inputs(x), precision())
    plan.run()
    b, n, h, _ = plan.outs.shape
    nothing = plan.outs.new_empty(b, n, h, 0)
    e2 = nothing if plan.e2_outs is None else plan.e2_outs
    addresses = nothing if plan.address_outs is None else plan.address_outs
    return KernelOuts(plan.outs, e2, addresses, weighted_entropies(x, plan.stats), plan.stats)


def backward(x: KernelInputs, outs: KernelOuts, grads: KernelOuts) -> KernelInputs:
    above = Above(
        out_grads=grads.features.contiguous(),
        e2_grads=None if x.e2_values is None else grads.e2.contiguous(),
        address_grads=None if x.e2_addresses is None else grads.addresses.contiguous(),
        deltas=deltas(*zip(outs[:3], grads[:3])),
        entropy_rows=entropy_rows(x, grads.entropies),
    )
    plan = plan_backward(kernel_inputs(x), outs.stats, above, precision())
    plan.run()
    found = plan.grads
    e1 = mixture_grads(x.e1_weights, x.e1_addresses, plan.mixed)
    own, e2_addresses = None, like(x.e2_addresses, found.get("e2_addresses"))
    if x.own_weights is not None:
        own, e2_addresses = mixture_grads(x.own_weights, x.e2_addresses, found["e2_addresses"])
    return x._replace(
        n2_values=like(x.n2_values, found["values"], heads_first=True),
        n1_queries=like(x.n1_queries, found.get("queries"), heads_first=True),
        n2_keys=like(x.n2_keys, found.get("keys"), heads_first=True),
        e1_weights=e1[0],
        e1_addresses=e1[1],
        edge_temps=like(x.edge_temps, found.get("edge_temps")),
        e2_queries=like(x.e2_queries, found.get("e2_queries")),
        e2_keys=like(x.e2_keys, over_heads(x.e2_keys, found.get("e2_keys"))),
        e2_values=like(x.e2_values, over_heads(x.e2_values, found.get("e2_values"))),
        own_weights=own,
        e2_addresses=e2_addresses,
    )


def weighted_entropies(x: KernelInputs, stats: Tensor) -> Tensor:
    """The two weighted sums over rows, from the entropies that the kernel left in `stats`."""
    found = [stats.new_zeros(()), stats.new_zeros(())]
    if x.entropy_weights is not None:
        for i, present in enumerate((x.e1_weights is not None, x.n1_queries is not None)):
            if present:
                found[i] = (stats[..., 2 + 2 * i].sum(dim=1) * x.entropy_weights).sum()
    return torch.stack(found)


def entropy_rows(x: KernelInputs, grads: Tensor | None) -> Tensor | None:
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


def mixture_grads(
    weights: Tensor | None, addresses: Tensor | None, mixed: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weights and addresses from that of their product, (b, n, h, m)."""
    if mixed is None or weights is None or addresses is None:
        return None, None
    left, right = weights.to(mixed.dtype), addresses.to(mixed.dtype)
    return (
        torch.matmul(mixed, right.mT).to(weights.dtype),
        torch.matmul(left.mT, mixed).to(addresses.dtype),
    )


def over_heads(tensor: Tensor | None, grad: Tensor | None) -> Tensor | None:
    """Kernels give a gradient per head; one set of keys for all heads gets the sum."""
    if tensor is None or grad is None:
        return None
    return grad.sum(dim=1, keepdim=True) if tensor.shape[1] == 1 else grad


def like(tensor: Tensor | None, grad: Tensor | None, *, heads_first: bool = False) -> Any:
    """A gradient in the dtype and the order of axes of its tensor; None for an absent one."""
    if tensor is None or grad is None:
        return None
    return (grad.transpose(1, 2) if heads_first else grad).to(tensor.dtype)
