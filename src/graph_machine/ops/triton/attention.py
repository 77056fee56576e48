"""Edge-augmented attention by kernels, and pre-aggregated referral, which is the same computation.

There every n2 offers one mixed edge per head: a second pair of queries and keys, and an address
beside the value. The mixed addresses are made by a matrix product, in both passes.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.core import AttendInputs, AttendOuts
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


def kernel_inputs(x: AttendInputs) -> Inputs:
    values = node_major(x.n2_values)
    assert values is not None
    own = x.own_weights is not None and x.e2_addresses is not None
    e2_keys, addresses = whole(x.e2_keys), None
    if x.own_weights is not None and x.e2_addresses is not None:
        addresses = torch.matmul(x.own_weights.float(), x.e2_addresses.float())  # b m h a
    return Inputs(
        **factors(x),
        values=values,
        e2_queries=node_major(x.e2_queries),
        e2_keys=None if e2_keys is None else e2_keys.unsqueeze(3),
        e2_addresses=addresses,
        own=own,
    )


def forward(x: AttendInputs) -> AttendOuts:
    plan = plan_forward(kernel_inputs(x), precision())
    plan.run()
    b, n, h, _ = plan.outs.shape
    addresses = plan.outs.new_empty(b, n, h, 0) if plan.address_outs is None else plan.address_outs
    return AttendOuts(plan.outs, addresses, weighted_entropies(x, plan.stats), plan.stats)


def backward(x: AttendInputs, outs: AttendOuts, grads: AttendOuts) -> AttendInputs:
    """`outs` has all but the entropies."""
    pairs, address_grads = [(outs.features, grads.features)], None
    if x.e2_addresses is not None:
        address_grads = grads.addresses
        if address_grads is None:
            address_grads = torch.zeros_like(outs.addresses)
        pairs.append((outs.addresses, address_grads))
    above = Above(
        out_grads=grads.features.contiguous(),
        e2_grads=None,
        address_grads=whole(address_grads),
        deltas=deltas(*pairs),
        entropy_rows=entropy_rows(x, grads.entropies),
    )
    plan = plan_backward(kernel_inputs(x), outs.stats, above, precision())
    plan.run()
    found = plan.grads
    e2_key_grads = found.get("e2_keys")
    return replace(
        x,
        **slot_grads(x, plan.mixed),
        edge_temps=like(x.edge_temps, found.get("edge_temps")),
        n1_queries=like(x.n1_queries, found.get("queries"), heads_first=True),
        n2_keys=like(x.n2_keys, found.get("keys"), heads_first=True),
        n2_values=like(x.n2_values, found["values"], heads_first=True),
        e2_queries=like(x.e2_queries, found.get("e2_queries"), heads_first=True),
        e2_keys=None if e2_key_grads is None else like(x.e2_keys, e2_key_grads.squeeze(3)),
        **_own_grads(x, found.get("e2_addresses")),
    )


def _own_grads(x: AttendInputs, mixed: Tensor | None) -> dict[str, Any]:
    """From the gradient of the mixed addresses, (b, m, h, a), to what was mixed."""
    if mixed is None or x.own_weights is None or x.e2_addresses is None:
        return {"own_weights": None, "e2_addresses": None}
    weights, addresses = x.own_weights.to(mixed.dtype), x.e2_addresses.to(mixed.dtype)
    return {
        "own_weights": torch.matmul(mixed, addresses.mT).to(x.own_weights.dtype),
        "e2_addresses": torch.matmul(weights.mT, mixed).to(x.e2_addresses.dtype),
    }
