"""Joint and conditional referral, forward and backward, chunk by chunk."""

import torch
from torch import Tensor

from graph_machine.ops.attention.chunked import real_rows
from graph_machine.ops.backend import Implementation
from graph_machine.ops.chunked_factors import backward_factors, forward_factors, recompute_factors
from graph_machine.ops.chunks import Chunk, Scratch, chunks, pad_width, padded
from graph_machine.ops.core import ReferInputs, ReferOuts, empty_referred
from graph_machine.ops.referral.pair_weights import (
    Outs,
    Pairs,
    Setting,
    backward_pairs,
    forward_pairs,
)


def _slot_major(tensor: Tensor, out: Tensor) -> None:
    """Write (..., m, l, x) into the first x columns of (..., c = l m, width)."""
    *_, m, l, x = tensor.shape
    out[..., :x].unflatten(-2, (l, m)).copy_(tensor.transpose(-3, -2))


def _node_major(flat: Tensor, out: Tensor) -> None:
    """Read (..., c = l m, x) back into (..., m, l, x)."""
    m, l = out.shape[-3:-1]
    out.copy_(flat.unflatten(-2, (l, m)).transpose(-3, -2))


def _buffers(inputs: ReferInputs, chunk: Chunk, scratch: Scratch, prefix: str) -> Pairs:
    """Of the right sizes; contents undefined."""
    g, s, h = chunk.num_graphs, chunk.num_sources, inputs.e2_queries.shape[2]
    u, m, l = inputs.e2_keys.shape[1:4]
    d, e, a = inputs.widths
    return Pairs(
        scratch(f"{prefix}queries", g, h, s, pad_width(d)),
        scratch(f"{prefix}keys", g * u, l * m, pad_width(d)),
        scratch(f"{prefix}wide", g, l * m, pad_width(a + e if inputs.shared else a)),
        None if inputs.shared else scratch(f"{prefix}values", g * u, l * m, pad_width(e)),
    )


def _out_buffers(inputs: ReferInputs, chunk: Chunk, scratch: Scratch, prefix: str) -> Outs:
    g, s, (h, m) = chunk.num_graphs, chunk.num_sources, inputs.n2_values.shape[1:3]
    _, e, a = inputs.widths
    return Outs(
        scratch(f"{prefix}wide", g, h, s, pad_width(a + e if inputs.shared else a)),
        None if inputs.shared else scratch(f"{prefix}values", g, h, s, pad_width(e)),
        scratch(f"{prefix}n2", g, h, s, m),
    )


def _gather(inputs: ReferInputs, chunk: Chunk, scratch: Scratch) -> Pairs:
    """This chunk's queries, and its graphs' keys and values (made once per graph)."""
    data = _buffers(inputs, chunk, scratch, "")
    d, e, a = inputs.widths
    data.queries[..., :d].copy_(chunk.take(inputs.e2_queries, 1).transpose(1, 2))
    data.queries[..., d:].zero_()
    if not chunk.first:
        return data
    data.keys[..., d:].zero_()
    _slot_major(chunk.take(inputs.e2_keys, None).flatten(0, 1), data.keys)
    _slot_major(chunk.take(inputs.e2_addresses, None), data.wide)
    values = chunk.take(inputs.e2_values, None)
    if data.values is None:
        data.wide[..., a + e :].zero_()
        _slot_major(values.squeeze(1), data.wide[..., a:])
    else:
        data.wide[..., a:].zero_()
        data.values[..., e:].zero_()
        _slot_major(values.flatten(0, 1), data.values)
    return data


def _setting(inputs: ReferInputs, chunk: Chunk, scratch: Scratch) -> Setting:
    return Setting(inputs.e2_keys.shape[3], inputs.conditional, chunk, scratch)


def forward(inputs: ReferInputs) -> ReferOuts:
    b, h, n, m = inputs.sizes
    (_, e, a), v = inputs.widths, inputs.n2_values.shape[-1]
    scratch, made = Scratch(inputs.n2_values), empty_referred(inputs)
    made.entropies.zero_()
    for chunk in chunks(b, n, h * m, inputs.device):
        data = _gather(inputs, chunk, scratch)
        n2_factors = forward_factors(inputs, chunk, scratch, made.entropies)
        outs = _out_buffers(inputs, chunk, scratch, "out_")
        forward_pairs(n2_factors, data, outs, _setting(inputs, chunk, scratch))
        chunk.take(made.addresses, 1).copy_(outs.wide[..., :a].transpose(1, 2))
        carried = outs.wide[..., a:] if outs.values is None else outs.values
        chunk.take(made.e2, 1).copy_(carried[..., :e].transpose(1, 2))
        values = padded(chunk.take(inputs.n2_values, None), "n2_values", scratch)
        found = torch.bmm(outs.n2.flatten(0, 1), values.flatten(0, 1)).view(*outs.n2.shape[:3], -1)
        chunk.take(made.n2, 1).copy_(found[..., :v].transpose(1, 2))
    real = real_rows(inputs.mask, made.n2)
    if real is not None:
        for found in (made.addresses, made.n2, made.e2):
            found.mul_(real[..., None, None])
    return made


def backward(inputs: ReferInputs, outs: ReferOuts, above: ReferOuts) -> ReferInputs:
    b, h, n, m = inputs.sizes
    real = real_rows(inputs.mask, above.n2)
    if real is not None:
        above = above._replace(
            addresses=above.addresses * real[..., None, None],
            n2=above.n2 * real[..., None, None],
            e2=above.e2 * real[..., None, None],
        )
    scratch, grads = Scratch(inputs.n2_values), inputs.empty_grads()
    for chunk in chunks(b, n, h * m, inputs.device):
        data = _gather(inputs, chunk, scratch)
        sums = _buffers(inputs, chunk, scratch, "grad_")
        again = recompute_factors(inputs, chunk, scratch)
        n2_grads = chunk.take(above.n2, 1).transpose(1, 2)  # g h s e
        n2_grads = padded(n2_grads, "n2_out_grads", scratch).flatten(0, 1)
        values = padded(chunk.take(inputs.n2_values, None), "n2_values", scratch).flatten(0, 1)
        part = _out_grads(inputs, above, chunk, scratch)
        torch.bmm(n2_grads, values.transpose(1, 2), out=part.n2.flatten(0, 1))
        factor_grads = scratch("n2_factor_grads", *again.n2_factors.shape)
        n2_weights = scratch("n2_weights", *again.n2_factors.shape)
        setting = _setting(inputs, chunk, scratch)
        backward_pairs(again.n2_factors, data, part, n2_weights, factor_grads, sums, setting)
        width = grads.e2_queries.shape[-1]
        chunk.take(grads.e2_queries, 1).copy_(sums.queries[..., :width].transpose(1, 2))
        _add_value_grads(grads.n2_values, n2_weights, n2_grads, chunk)
        backward_factors(inputs, again, grads, factor_grads, above.entropies, chunk, scratch)
        if chunk.last:
            _scatter(inputs, sums, grads, chunk)
    return grads


def _out_grads(inputs: ReferInputs, above: ReferOuts, chunk: Chunk, scratch: Scratch) -> Outs:
    """Gradients of the padded outputs; that of the n2 weights is left to the caller."""
    outs = _out_buffers(inputs, chunk, scratch, "out_grad_")
    _, e, a = inputs.widths
    outs.wide[..., :a].copy_(chunk.take(above.addresses, 1).transpose(1, 2))
    outs.wide[..., a:].zero_()
    carried = outs.wide[..., a:] if outs.values is None else outs.values.zero_()
    carried[..., :e].copy_(chunk.take(above.e2, 1).transpose(1, 2))
    return outs


def _add_value_grads(grads: Tensor, n2_weights: Tensor, above: Tensor, chunk: Chunk) -> None:
    g, h, _, m = n2_weights.shape
    found = torch.bmm(n2_weights.flatten(0, 1).transpose(1, 2), above).view(g, h, m, -1)
    part = chunk.take(grads, None)
    found = found[..., : part.shape[-1]]
    if chunk.first:
        part.copy_(found)
    else:
        part.add_(found)


def _scatter(inputs: ReferInputs, sums: Pairs, grads: ReferInputs, chunk: Chunk) -> None:
    """Gradients of keys, values and addresses, once all sources of the graphs are through."""
    u = inputs.e2_keys.shape[1]
    d, e, a = inputs.widths
    _node_major(sums.keys[..., :d].unflatten(0, (-1, u)), chunk.take(grads.e2_keys, None))
    _node_major(sums.wide[..., :a], chunk.take(grads.e2_addresses, None))
    values = chunk.take(grads.e2_values, None)
    if sums.values is None:
        _node_major(sums.wide[..., a : a + e].unsqueeze(1), values)
    else:
        _node_major(sums.values[..., :e].unflatten(0, (-1, u)), values)


REFERRAL = Implementation(forward, backward)
