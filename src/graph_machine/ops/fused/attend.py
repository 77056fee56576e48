"""Attention over n2, forward and backward, chunk by chunk.

Pre-aggregated referral is the same computation: its values are wider, and its e2 keys are a second
pair of queries and keys beside the node expert's.
"""

import torch
from torch import Tensor

from graph_machine.ops.fused.factors import (
    backward_factors,
    forward_factors,
    product_backward,
    recompute_factors,
    softmax_backward,
)
from graph_machine.ops.fused.inputs import (
    STATS,
    AttendGrads,
    AttendInputs,
    FactorGrads,
    FactorInputs,
    empty_grads,
)
from graph_machine.ops.fused.native import calls
from graph_machine.ops.fused.plan import Chunk, Scratch, chunks, pad_width, padded


def real_rows(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """0 for sources that may look nowhere: their outputs are 0. (b or 1) (n or 1)."""
    return None if mask is None else mask.any(dim=-1).to(like.dtype)


def _wide_values(inputs: AttendInputs, chunk: Chunk, scratch: Scratch) -> Tensor:
    """[values | mixed addresses | 0] of a chunk's graphs, (gh, m, width)."""
    v, a = inputs.widths
    values = chunk.take(inputs.values, None)
    g, h, m, _ = values.shape
    wide = scratch("values", g, h, m, pad_width(v + a))
    if chunk.first:
        wide[..., :v].copy_(values)
        wide[..., v + a :].zero_()
        if inputs.own_weights is not None and inputs.e2_addresses is not None:
            own = chunk.take(inputs.own_weights, None).flatten(0, 1)  # gm h l
            addresses = chunk.take(inputs.e2_addresses, None).flatten(0, 1)  # gm l a
            mixed = torch.bmm(own, addresses, out=scratch("own_mixed", g * m, h, a))
            wide[..., v : v + a].copy_(mixed.view(g, m, h, a).transpose(1, 2))
    return wide.flatten(0, 1)


def _add_e2(inputs: AttendInputs, n2_factors: Tensor, chunk: Chunk, scratch: Scratch) -> Tensor:
    """n2 factors plus the factor of the mixed e2 keys."""
    if inputs.e2_queries is None or inputs.e2_keys is None:
        return n2_factors
    queries = padded(chunk.take(inputs.e2_queries, 2), "e2_queries", scratch).flatten(0, 1)
    keys = padded(chunk.take(inputs.e2_keys, None), "e2_keys", scratch).flatten(0, 1)
    flat = n2_factors.flatten(0, 1)
    return torch.baddbmm(flat, queries, keys.transpose(1, 2), out=flat).view_as(n2_factors)


def forward_attend(factors: FactorInputs, inputs: AttendInputs) -> tuple[Tensor, ...]:
    """Outputs (b, n, h, v), addresses (b, n, h, a; a = 0 without any), the two entropies, stats."""
    served = calls.attend(factors, inputs)
    if served is not None:
        return served
    b, h, n, m = factors.sizes
    v, a = inputs.widths
    scratch = Scratch(inputs.values)
    outs = inputs.values.new_empty(b, n, h, v)
    address_outs = inputs.values.new_empty(b, n, h, a)
    entropies = inputs.values.new_zeros(2)
    for chunk in chunks(b, n, h * m, outs.device):
        wide = _wide_values(inputs, chunk, scratch)
        n2_factors = forward_factors(factors, chunk, scratch, entropies)
        logits = _add_e2(inputs, n2_factors, chunk, scratch)
        flat = logits.flatten(0, 1)  # gh s m
        found = scratch("outs", *flat.shape[:2], wide.shape[-1])
        torch.bmm(torch.softmax(flat, dim=-1, out=flat), wide, out=found)
        found = found.view(*logits.shape[:3], -1).transpose(1, 2)  # g s h width
        chunk.take(outs, 1).copy_(found[..., :v])
        if a:
            chunk.take(address_outs, 1).copy_(found[..., v : v + a])
    real = real_rows(factors.mask, outs)
    if real is not None:
        outs *= real[..., None, None]
        address_outs *= real[..., None, None]
    return outs, address_outs, entropies, outs.new_empty(b, h, n, STATS)


def backward_attend(
    factors: FactorInputs,
    inputs: AttendInputs,
    stats: Tensor,
    out_grads: Tensor,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
) -> tuple[FactorGrads, AttendGrads]:
    """`stats` are what the kernels keep of the forward pass."""
    tensors = (stats, out_grads, address_grads, entropy_grads)
    served = calls.attend_backward(factors, inputs, *tensors)
    if served is not None:
        return served
    b, h, n, m = factors.sizes
    v, a = inputs.widths
    real = real_rows(factors.mask, out_grads)
    if real is not None:
        out_grads = out_grads * real[..., None, None]
        if address_grads is not None:
            address_grads = address_grads * real[..., None, None]
    scratch = Scratch(inputs.values)
    grads = empty_grads(FactorGrads, factors)
    rest = empty_grads(AttendGrads, inputs)
    for chunk in chunks(b, n, h * m, out_grads.device):
        wide = _wide_values(inputs, chunk, scratch)
        again = recompute_factors(factors, chunk, scratch)
        logits = again.n2_factors
        if inputs.e2_queries is not None:
            copy = scratch("logits", *logits.shape).copy_(logits)
            logits = _add_e2(inputs, copy, chunk, scratch)
        g, _, s, _ = logits.shape
        found = scratch("out_grads", g, h, s, wide.shape[-1])
        found[..., :v].copy_(chunk.take(out_grads, 1).transpose(1, 2))
        found[..., v:].zero_()
        if a and address_grads is not None:
            found[..., v : v + a].copy_(chunk.take(address_grads, 1).transpose(1, 2))
        found = found.flatten(0, 1)  # gh s width
        value_grads = scratch("value_grads", g * h, m, wide.shape[-1])
        delta = scratch("delta", g, h, s, m)
        _weights_backward(logits, wide, found, delta, value_grads, chunk, scratch)
        if inputs.e2_queries is not None and inputs.e2_keys is not None:
            assert rest.e2_queries is not None
            assert rest.e2_keys is not None
            product_backward(
                delta,
                (inputs.e2_queries, inputs.e2_keys),
                (rest.e2_queries, rest.e2_keys),
                ("e2_queries", "e2_keys"),
                chunk,
                scratch,
            )
        backward_factors(factors, again, grads, delta, entropy_grads, chunk, scratch)
        if chunk.last:
            _value_backward(inputs, rest, value_grads.view(g, h, m, -1), chunk, scratch)
    return grads, rest


def _weights_backward(
    logits: Tensor,
    wide: Tensor,
    out_grads: Tensor,
    delta: Tensor,
    value_grads: Tensor,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    """Fill `delta`, the gradient of the logits, and `value_grads`; all with heads flattened."""
    flat, slope = logits.flatten(0, 1), delta.flatten(0, 1)  # gh s m
    weights = torch.softmax(flat, dim=-1, out=scratch("weights", *flat.shape))
    if chunk.first:
        torch.bmm(weights.transpose(1, 2), out_grads, out=value_grads)
    else:
        torch.baddbmm(value_grads, weights.transpose(1, 2), out_grads, out=value_grads)
    torch.bmm(out_grads, wide.transpose(1, 2), out=slope)
    softmax_backward(slope, weights, slope)


def _value_backward(
    inputs: AttendInputs, grads: AttendGrads, wide: Tensor, chunk: Chunk, scratch: Scratch
) -> None:
    """From the gradient of [values | mixed addresses] to that of its parts."""
    v, a = inputs.widths
    chunk.take(grads.values, None).copy_(wide[..., :v])
    if inputs.own_weights is None or inputs.e2_addresses is None:
        return
    assert grads.own_weights is not None
    assert grads.e2_addresses is not None
    g, h, m, _ = wide.shape
    mixed = scratch("own_mixed", g, m, h, a)
    mixed.copy_(wide[..., v : v + a].transpose(1, 2))
    mixed = mixed.flatten(0, 1)  # gm h a
    own = chunk.take(inputs.own_weights, None).flatten(0, 1)
    addresses = chunk.take(inputs.e2_addresses, None).flatten(0, 1)
    own_grads = chunk.take(grads.own_weights, None)
    own_grads.copy_(torch.bmm(mixed, addresses.transpose(1, 2)).view_as(own_grads))
    address_grads = chunk.take(grads.e2_addresses, None).flatten(0, 1)
    torch.bmm(own.transpose(1, 2), mixed, out=address_grads)
