"""Joint referral by kernels: one softmax over all pairs (n2, e2), none of it in memory."""

from dataclasses import replace

from torch import Tensor

from graph_machine.ops.core import ReferInputs, ReferOuts
from graph_machine.ops.triton.launch import Above, Inputs, plan_backward, plan_forward
from graph_machine.ops.triton.run import (
    deltas,
    entropy_rows,
    factors,
    like,
    node_major,
    precision,
    slot_grads,
    weighted_entropies,
    whole,
)


def kernel_inputs(x: ReferInputs) -> Inputs:
    values = node_major(x.n2_values)
    assert values is not None
    return Inputs(
        **factors(x),
        values=values,
        e2_queries=whole(x.e2_queries),
        e2_keys=whole(x.e2_keys),
        e2_values=whole(x.e2_values),
        e2_addresses=whole(x.e2_addresses),
    )


def forward(x: ReferInputs) -> ReferOuts:
    plan = plan_forward(kernel_inputs(x), precision())
    plan.run()
    assert plan.address_outs is not None
    assert plan.e2_outs is not None
    entropies = weighted_entropies(x, plan.stats)
    return ReferOuts(plan.address_outs, plan.outs, plan.e2_outs, entropies, plan.stats)


def backward(x: ReferInputs, outs: ReferOuts, grads: ReferOuts) -> ReferInputs:
    """`outs` has all but the entropies."""
    above = Above(
        out_grads=grads.n2.contiguous(),
        e2_grads=grads.e2.contiguous(),
        address_grads=grads.addresses.contiguous(),
        deltas=deltas((outs.n2, grads.n2), (outs.e2, grads.e2), (outs.addresses, grads.addresses)),
        entropy_rows=entropy_rows(x, grads.entropies),
    )
    plan = plan_backward(kernel_inputs(x), outs.stats, above, precision())
    plan.run()
    found = plan.grads
    return replace(
        x,
        **slot_grads(x, plan.mixed),
        edge_temps=like(x.edge_temps, found.get("edge_temps")),
        n1_queries=like(x.n1_queries, found.get("queries"), heads_first=True),
        n2_keys=like(x.n2_keys, found.get("keys"), heads_first=True),
        n2_values=like(x.n2_values, found["values"], heads_first=True),
        e2_queries=like(x.e2_queries, found["e2_queries"]),
        e2_keys=like(x.e2_keys, _over_heads(x.e2_keys, found["e2_keys"])),
        e2_values=like(x.e2_values, _over_heads(x.e2_values, found["e2_values"])),
        e2_addresses=like(x.e2_addresses, found["e2_addresses"]),
    )


def _over_heads(tensor: Tensor, grad: Tensor) -> Tensor:
    """Kernels give a gradient per head; one set of keys for all heads gets the sum."""
    return grad.sum(dim=1, keepdim=True) if tensor.shape[1] == 1 else grad
