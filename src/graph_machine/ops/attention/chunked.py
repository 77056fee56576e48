"""Attention over n2, forward and backward, chunk by chunk.

Pre-aggregated referral is the same computation: its values are wider, and its e2 keys are a second
pair of queries and keys beside the node expert's.
"""

import torch
from torch import Tensor

from graph_machine.ops.backend import Implementation
from graph_machine.ops.chunked_factors import (
    backward_factors,
    forward_factors,
    product_backward,
    recompute_factors,
    softmax_backward,
)
from graph_machine.ops.chunks import Chunk, Scratch, chunks, pad_width, padded
from graph_machine.ops.core import AttendInputs, AttendOuts, empty_attended


def real_rows(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """0 for sources that may look nowhere: their outputs are 0. (b or 1) (n or 1)."""
    return None if mask is None else mask.any(dim=-1).to(like.dtype)


def _wide_values(inputs: AttendInputs, chunk: Chunk, scratch: Scratch) -> Tensor:
    """[values | mixed addresses | 0] of a chunk's graphs, (gh, m, width)."""
    v, a = inputs.widths
    values = chunk.take(inputs.n2_values, None)
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


def forward(inputs: AttendInputs) -> AttendOuts:
    b, h, n, m = inputs.sizes
    v, a = inputs.widths
    scratch, made = Scratch(inputs.n2_values), empty_attended(inputs)
    made.entropies.zero_()
    for chunk in chunks(b, n, h * m, inputs.device):
        wide = _wide_values(inputs, chunk, scratch)
        n2_factors = forward_factors(inputs, chunk, scratch, made.entropies)
        logits = _add_e2(inputs, n2_factors, chunk, scratch)
        flat = logits.flatten(0, 1)  # gh s m
        found = scratch("outs", *flat.shape[:2], wide.shape[-1])
        torch.bmm(torch.softmax(flat, dim=-1, out=flat), wide, out=found)
        found = found.view(*logits.shape[:3], -1).transpose(1, 2)  # g s h width
        chunk.take(made.features, 1).copy_(found[..., :v])
        if a:
            chunk.take(made.addresses, 1).copy_(found[..., v : v + a])
    real = real_rows(inputs.mask, made.features)
    if real is not None:
        made.features.mul_(real[..., None, None])
        made.addresses.mul_(real[..., None, None])
    return made


def backward(inputs: AttendInputs, outs: AttendOuts, above: AttendOuts) -> AttendInputs:
    b, h, n, m = inputs.sizes
    v, a = inputs.widths
    feature_grads, address_grads = above.features, above.addresses
    real = real_rows(inputs.mask, feature_grads)
    if real is not None:
        feature_grads = feature_grads * real[..., None, None]
        if address_grads is not None:
            address_grads = address_grads * real[..., None, None]
    scratch, grads = Scratch(inputs.n2_values), inputs.empty_grads()
    for chunk in chunks(b, n, h * m, inputs.device):
        wide = _wide_values(inputs, chunk, scratch)
        again = recompute_factors(inputs, chunk, scratch)
        logits = again.n2_factors
        if inputs.e2_queries is not None:
            copy = scratch("logits", *logits.shape).copy_(logits)
            logits = _add_e2(inputs, copy, chunk, scratch)
        g, _, s, _ = logits.shape
        found = scratch("out_grads", g, h, s, wide.shape[-1])
        found[..., :v].copy_(chunk.take(feature_grads, 1).transpose(1, 2))
        found[..., v:].zero_()
        if a and address_grads is not None:
            found[..., v : v + a].copy_(chunk.take(address_grads, 1).transpose(1, 2))
        found = found.flatten(0, 1)  # gh s width
        value_grads = scratch("value_grads", g * h, m, wide.shape[-1])
        delta = scratch("delta", g, h, s, m)
        _weights_backward(logits, wide, found, delta, value_grads, chunk, scratch)
        _e2_backward(inputs, grads, delta, chunk, scratch)
        backward_factors(inputs, again, grads, delta, above.entropies, chunk, scratch)
        if chunk.last:
            _value_backward(inputs, grads, value_grads.view(g, h, m, -1), chunk, scratch)
    return grads


def _e2_backward(
    inputs: AttendInputs, grads: AttendInputs, delta: Tensor, chunk: Chunk, scratch: Scratch
) -> None:
    if inputs.e2_queries is None or inputs.e2_keys is None:
        return
    assert grads.e2_queries is not None
    assert grads.e2_keys is not None
    product_backward(
        delta,
        (inputs.e2_queries, inputs.e2_keys),
        (grads.e2_queries, grads.e2_keys),
        ("e2_queries", "e2_keys"),
        chunk,
        scratch,
    )


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
    inputs: AttendInputs, grads: AttendInputs, wide: Tensor, chunk: Chunk, scratch: Scratch
) -> None:
    """From the gradient of [values | mixed addresses] to that of its parts."""
    v, a = inputs.widths
    chunk.take(grads.n2_values, None).copy_(wide[..., :v])
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


ATTENTION = Implementation(forward, backward)
