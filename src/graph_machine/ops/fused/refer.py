"""Joint and conditional referral, forward and backward, chunk by chunk."""

import torch
from torch import Tensor

from graph_machine.ops.fused.attend import real_rows
from graph_machine.ops.fused.factors import backward_factors, forward_factors, recompute_factors
from graph_machine.ops.fused.inputs import (
    STATS,
    FactorGrads,
    FactorInputs,
    ReferGrads,
    ReferInputs,
    empty_grads,
)
from graph_machine.ops.fused.native import calls
from graph_machine.ops.fused.pairs import Outs, Pairs, Setting, backward_pairs, forward_pairs
from graph_machine.ops.fused.plan import Chunk, Scratch, chunks, pad_width, padded


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
    g, s, h = chunk.num_graphs, chunk.num_sources, inputs.queries.shape[2]
    u, m, l = inputs.keys.shape[1:4]
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
    data.queries[..., :d].copy_(chunk.take(inputs.queries, 1).transpose(1, 2))
    data.queries[..., d:].zero_()
    if not chunk.first:
        return data
    data.keys[..., d:].zero_()
    _slot_major(chunk.take(inputs.keys, None).flatten(0, 1), data.keys)
    _slot_major(chunk.take(inputs.addresses, None), data.wide)
    values = chunk.take(inputs.values, None)
    if data.values is None:
        data.wide[..., a + e :].zero_()
        _slot_major(values.squeeze(1), data.wide[..., a:])
    else:
        data.wide[..., a:].zero_()
        data.values[..., e:].zero_()
        _slot_major(values.flatten(0, 1), data.values)
    return data


def _setting(inputs: ReferInputs, chunk: Chunk, scratch: Scratch) -> Setting:
    return Setting(inputs.keys.shape[3], inputs.conditional, chunk, scratch)


def forward_refer(factors: FactorInputs, inputs: ReferInputs) -> tuple[Tensor, ...]:
    """New addresses (b, n, h, a), what n2 and e2 carry (b, n, h, e), two entropies, stats."""
    served = calls.refer(factors, inputs)
    if served is not None:
        return served
    b, h, n, m = factors.sizes
    (_, e, a), v = inputs.widths, inputs.n2_values.shape[-1]
    scratch = Scratch(inputs.queries)
    address_outs = inputs.queries.new_empty(b, n, h, a)
    n2_outs = inputs.queries.new_empty(b, n, h, v)
    e2_outs = inputs.queries.new_empty(b, n, h, e)
    entropies = inputs.queries.new_zeros(2)
    for chunk in chunks(b, n, h * m, address_outs.device):
        data = _gather(inputs, chunk, scratch)
        n2_factors = forward_factors(factors, chunk, scratch, entropies)
        outs = _out_buffers(inputs, chunk, scratch, "out_")
        forward_pairs(n2_factors, data, outs, _setting(inputs, chunk, scratch))
        chunk.take(address_outs, 1).copy_(outs.wide[..., :a].transpose(1, 2))
        carried = outs.wide[..., a:] if outs.values is None else outs.values
        chunk.take(e2_outs, 1).copy_(carried[..., :e].transpose(1, 2))
        values = padded(chunk.take(inputs.n2_values, None), "n2_values", scratch)
        found = torch.bmm(outs.n2.flatten(0, 1), values.flatten(0, 1)).view(*outs.n2.shape[:3], -1)
        chunk.take(n2_outs, 1).copy_(found[..., :v].transpose(1, 2))
    real = real_rows(factors.mask, n2_outs)
    if real is not None:
        for outs in (address_outs, n2_outs, e2_outs):
            outs *= real[..., None, None]
    return address_outs, n2_outs, e2_outs, entropies, n2_outs.new_empty(b, h, n, STATS)


def backward_refer(
    factors: FactorInputs,
    inputs: ReferInputs,
    outs: tuple[Tensor, Tensor, Tensor],
    stats: Tensor,
    out_grads: tuple[Tensor, Tensor, Tensor],
    entropy_grads: Tensor | None,
) -> tuple[FactorGrads, ReferGrads]:
    """`outs` and `out_grads` are of addresses, n2 and e2; `stats` what the kernels keep."""
    served = calls.refer_backward(factors, inputs, outs, stats, out_grads, entropy_grads)
    if served is not None:
        return served
    address_grads, n2_grads, e2_grads = out_grads
    b, h, n, m = factors.sizes
    real = real_rows(factors.mask, n2_grads)
    if real is not None:
        address_grads = address_grads * real[..., None, None]
        n2_grads = n2_grads * real[..., None, None]
        e2_grads = e2_grads * real[..., None, None]
    scratch = Scratch(inputs.queries)
    grads = empty_grads(FactorGrads, factors)
    rest = empty_grads(ReferGrads, inputs)
    for chunk in chunks(b, n, h * m, address_grads.device):
        data = _gather(inputs, chunk, scratch)
        sums = _buffers(inputs, chunk, scratch, "grad_")
        again = recompute_factors(factors, chunk, scratch)
        above = chunk.take(n2_grads, 1).transpose(1, 2)  # g h s e
        above = padded(above, "n2_out_grads", scratch).flatten(0, 1)
        values = padded(chunk.take(inputs.n2_values, None), "n2_values", scratch).flatten(0, 1)
        part = _out_grads(inputs, address_grads, e2_grads, chunk, scratch)
        torch.bmm(above, values.transpose(1, 2), out=part.n2.flatten(0, 1))
        factor_grads = scratch("n2_factor_grads", *again.n2_factors.shape)
        n2_weights = scratch("n2_weights", *again.n2_factors.shape)
        setting = _setting(inputs, chunk, scratch)
        backward_pairs(again.n2_factors, data, part, n2_weights, factor_grads, sums, setting)
        chunk.take(rest.queries, 1).copy_(
            sums.queries[..., : rest.queries.shape[-1]].transpose(1, 2)
        )
        _add_value_grads(rest.n2_values, n2_weights, above, chunk)
        backward_factors(factors, again, grads, factor_grads, entropy_grads, chunk, scratch)
        if chunk.last:
            _scatter(inputs, sums, rest, chunk)
    return grads, rest


def _out_grads(
    inputs: ReferInputs, address_grads: Tensor, e2_grads: Tensor, chunk: Chunk, scratch: Scratch
) -> Outs:
    """Gradients of the padded outputs; that of the n2 weights is left to the caller."""
    outs = _out_buffers(inputs, chunk, scratch, "out_grad_")
    _, e, a = inputs.widths
    outs.wide[..., :a].copy_(chunk.take(address_grads, 1).transpose(1, 2))
    outs.wide[..., a:].zero_()
    carried = outs.wide[..., a:] if outs.values is None else outs.values.zero_()
    carried[..., :e].copy_(chunk.take(e2_grads, 1).transpose(1, 2))
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


def _scatter(inputs: ReferInputs, sums: Pairs, grads: ReferGrads, chunk: Chunk) -> None:
    """Gradients of keys, values and addresses, once all sources of the graphs are through."""
    u = inputs.keys.shape[1]
    d, e, a = inputs.widths
    _node_major(sums.keys[..., :d].unflatten(0, (-1, u)), chunk.take(grads.keys, None))
    _node_major(sums.wide[..., :a], chunk.take(grads.addresses, None))
    values = chunk.take(grads.values, None)
    if sums.values is None:
        _node_major(sums.wide[..., a : a + e].unsqueeze(1), values)
    else:
        _node_major(sums.values[..., :e].unflatten(0, (-1, u)), values)
