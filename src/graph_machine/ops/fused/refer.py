"""Joint and conditional referral over all (n2, e2) pairs, forward and backward, chunk by chunk.

Pairs are flattened slot-major, c = (l, m), so that the n2 factors are added, and weights summed
over slots, along contiguous memory. Keys and values of e2 have `u` = h sets, or one for all heads
where the projections are absorbed into queries and outputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graph_machine.ops.fused.attend import real_rows
from graph_machine.ops.fused.factors import (
    FactorGrads,
    FactorInputs,
    backward_factors,
    forward_factors,
    recompute_factors,
    softmax_backward,
)
from graph_machine.ops.fused.plan import (
    Chunk,
    Scratch,
    chunks,
    pad_width,
    padded,
    within,
)


@dataclass(frozen=True)
class ReferInputs:
    queries: Tensor  # b n h d; with temperature and 1/sqrt(d)
    keys: Tensor  # b u m l d
    values: Tensor  # b u m l e
    n2_values: Tensor  # b h m e
    addresses: Tensor  # b m l a
    conditional: bool

    @property
    def shared(self) -> bool:
        """One set of keys and values for all heads, so that values lie beside the addresses."""
        return self.keys.shape[1] == 1

    @property
    def pairs(self) -> int:
        return self.keys.shape[2] * self.keys.shape[3]

    @property
    def num_heads(self) -> int:
        return self.queries.shape[2]


@dataclass(frozen=True)
class Collected:
    """Keys and values of a chunk's graphs, flattened to pairs and padded; or their gradients."""

    queries: Tensor  # g h s dw
    keys: Tensor  # gu c dw
    wide: Tensor  # g c w: [addresses | values if shared | 0]
    values: Tensor | None  # gh c ew, if not shared


def sum_weights(e2_weights: Tensor, scratch: Scratch) -> Tensor:
    """Over the slots of n2: (g, h, s, l, m) to (g, h, s, m)."""
    g, h, s, _, m = e2_weights.shape
    return torch.sum(e2_weights, dim=-2, out=scratch("n2_weights", g, h, s, m))


def _slot_major(tensor: Tensor, out: Tensor) -> None:
    """Write (..., m, l, x) into the first x columns of (..., c = l m, width)."""
    *_, m, l, x = tensor.shape
    out[..., :x].unflatten(-2, (l, m)).copy_(tensor.transpose(-3, -2))


def _node_major(flat: Tensor, out: Tensor) -> None:
    """Read (..., c = l m, x) back into (..., m, l, x)."""
    m, l = out.shape[-3:-1]
    out.copy_(flat.unflatten(-2, (l, m)).transpose(-3, -2))


def _collected(inputs: ReferInputs, chunk: Chunk, scratch: Scratch, prefix: str) -> Collected:
    """Buffers of the right sizes; contents undefined."""
    g, s, c = chunk.num_graphs, chunk.num_sources, inputs.pairs
    h, u = inputs.num_heads, inputs.keys.shape[1]
    dw, e = pad_width(inputs.queries.shape[-1]), inputs.values.shape[-1]
    a = inputs.addresses.shape[-1]
    return Collected(
        scratch(f"{prefix}queries", g, h, s, dw),
        scratch(f"{prefix}keys", g * u, c, dw),
        scratch(f"{prefix}wide", g, c, pad_width(a + e if inputs.shared else a)),
        None if inputs.shared else scratch(f"{prefix}values", g * u, c, pad_width(e)),
    )


def _gather(inputs: ReferInputs, chunk: Chunk, scratch: Scratch) -> Collected:
    """This chunk's queries, and its graphs' keys and values (made once per graph)."""
    data = _collected(inputs, chunk, scratch, "")
    d, e, a = inputs.queries.shape[-1], inputs.values.shape[-1], inputs.addresses.shape[-1]
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


@dataclass(frozen=True)
class Part:
    """The inner chunk: its place in whole tensors and in the outer chunk, and its weights."""

    place: Chunk
    local: Chunk
    queries: Tensor  # gu (h/u s) dw
    keys: Tensor  # gu c dw
    wide: Tensor  # g c w
    values: Tensor | None  # gh c ew
    e2_weights: Tensor  # g h s l m
    given_n2: Tensor | None  # conditional: weights of e2 given n2, g h s l m
    n2_softmax: Tensor | None  # conditional: softmax of the n2 factors, g h s m


def _parts(
    inputs: ReferInputs, data: Collected, n2_factors: Tensor, outer: Chunk, scratch: Scratch
) -> Iterator[Part]:
    """Weights over all pairs, a few graphs or sources at a time."""
    h, c = inputs.num_heads, inputs.pairs
    u, (m, l) = inputs.keys.shape[1], inputs.keys.shape[2:4]
    for place, local in within(outer, h * c, n2_factors.device):
        g, s = place.num_graphs, place.num_sources
        queries = local.take(data.queries, 2).reshape(g * u, h // u * s, -1)
        keys = data.keys.unflatten(0, (-1, u))[local.graphs].flatten(0, 1)
        factors = local.take(n2_factors, 2)  # g h s m
        logits = scratch("e2_logits", g, h, s, l, m)
        flat = logits.view(g * u, h // u * s, c)
        given = softmax = None
        if inputs.conditional:
            torch.bmm(queries, keys.transpose(1, 2), out=flat)
            given = torch.softmax(logits, dim=-2, out=logits)
            softmax = torch.softmax(factors, dim=-1)
            weights = torch.mul(
                given, softmax.unsqueeze(-2), out=scratch("e2_weights", g, h, s, l, m)
            )
        else:
            logits.copy_(factors.unsqueeze(-2).expand_as(logits))
            torch.baddbmm(flat, queries, keys.transpose(1, 2), out=flat)
            rows = logits.view(g * h * s, c)
            torch.softmax(rows, dim=-1, out=rows)
            weights = logits
        values = None
        if data.values is not None:
            values = data.values.unflatten(0, (-1, u))[local.graphs].flatten(0, 1)
        yield Part(
            place, local, queries, keys, data.wide[local.graphs], values, weights, given, softmax
        )


def forward_refer(
    factors: FactorInputs, inputs: ReferInputs
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New addresses (b, n, h, a), what n2 and e2 carry (b, n, h, e), and the two entropies."""
    b, h, n, m = factors.sizes
    e, a, v = inputs.values.shape[-1], inputs.addresses.shape[-1], inputs.n2_values.shape[-1]
    scratch = Scratch(inputs.queries)
    address_outs = inputs.queries.new_empty(b, n, h, a)
    n2_outs = inputs.queries.new_empty(b, n, h, v)
    e2_outs = inputs.queries.new_empty(b, n, h, e)
    entropies = inputs.queries.new_zeros(2)
    for outer in chunks(b, n, h * m, address_outs.device):
        data = _gather(inputs, outer, scratch)
        n2_factors = forward_factors(factors, outer, scratch, entropies)
        for part in _parts(inputs, data, n2_factors, outer, scratch):
            g, _, s, _, _ = part.e2_weights.shape
            flat = part.e2_weights.view(g, h * s, -1)
            width = part.wide.shape[-1]
            found = torch.bmm(flat, part.wide, out=scratch("outs", g, h * s, width))
            found = found.view(g, h, s, width)
            part.place.take(address_outs, 1).copy_(found[..., :a].transpose(1, 2))
            if part.values is not None:
                found = torch.bmm(part.e2_weights.view(g * h, s, -1), part.values)
                found, start = found.view(g, h, s, -1), 0
            else:
                start = a
            part.place.take(e2_outs, 1).copy_(found[..., start : start + e].transpose(1, 2))
            n2_weights = sum_weights(part.e2_weights, scratch)
            n2_values = padded(part.place.take(inputs.n2_values, None), "n2_values", scratch)
            outs = torch.bmm(n2_weights.flatten(0, 1), n2_values.flatten(0, 1)).view(g, h, s, -1)[
                ..., :v
            ]
            part.place.take(n2_outs, 1).copy_(outs.transpose(1, 2))
    real = real_rows(factors.mask, n2_outs)
    if real is not None:
        address_outs *= real[..., None, None]
        n2_outs *= real[..., None, None]
        e2_outs *= real[..., None, None]
    return address_outs, n2_outs, e2_outs, entropies


@dataclass
class ReferGrads:
    queries: Tensor
    keys: Tensor
    values: Tensor
    n2_values: Tensor
    addresses: Tensor


def backward_refer(
    factors: FactorInputs,
    inputs: ReferInputs,
    address_grads: Tensor,
    n2_grads: Tensor,
    e2_grads: Tensor,
    entropy_grads: Tensor | None,
) -> tuple[FactorGrads, ReferGrads]:
    b, h, n, m = factors.sizes
    real = real_rows(factors.mask, n2_grads)
    if real is not None:
        address_grads = address_grads * real[..., None, None]
        n2_grads = n2_grads * real[..., None, None]
        e2_grads = e2_grads * real[..., None, None]
    scratch = Scratch(inputs.queries)
    grads = FactorGrads.like(factors)
    rest = ReferGrads(
        torch.empty_like(inputs.queries),
        torch.empty_like(inputs.keys),
        torch.empty_like(inputs.values),
        torch.empty_like(inputs.n2_values),
        torch.empty_like(inputs.addresses),
    )
    for outer in chunks(b, n, h * m, address_grads.device):
        data = _gather(inputs, outer, scratch)
        sums = _collected(inputs, outer, scratch, "grad_")
        again = recompute_factors(factors, outer, scratch)
        factor_grads = scratch("n2_factor_grads", *again.n2_factors.shape)
        for part in _parts(inputs, data, again.n2_factors, outer, scratch):
            outs = _out_grads(inputs, part, address_grads, e2_grads, scratch)
            first = outer.first and part.local.first
            delta = _weight_grads(inputs, part, outs, n2_grads, rest, first, scratch)
            _value_sums(part, sums, outs, first)
            _logit_grads(part, delta, part.local.take(factor_grads, 2), scratch)
            _key_sums(inputs, part, sums, delta, rest, first)
        backward_factors(factors, again, grads, factor_grads, entropy_grads, outer, scratch)
        if outer.last:
            _scatter(inputs, sums, rest, outer)
    return grads, rest


def _out_grads(
    inputs: ReferInputs, part: Part, address_grads: Tensor, e2_grads: Tensor, scratch: Scratch
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the padded outputs: (g, hs, w), and (gh, s, ew) where values are per head."""
    g, h, s, _, _ = part.e2_weights.shape
    a, e = inputs.addresses.shape[-1], inputs.values.shape[-1]
    wide = scratch("out_grads", g, h, s, part.wide.shape[-1])
    wide[..., :a].copy_(part.place.take(address_grads, 1).transpose(1, 2))
    wide[..., a:].zero_()
    e2 = part.place.take(e2_grads, 1).transpose(1, 2)
    if part.values is None:
        wide[..., a : a + e].copy_(e2)
        return wide.flatten(1, 2), None
    per_head = scratch("e2_out_grads", g, h, s, part.values.shape[-1])
    per_head[..., :e].copy_(e2)
    per_head[..., e:].zero_()
    return wide.flatten(1, 2), per_head.flatten(0, 1)


def _weight_grads(
    inputs: ReferInputs,
    part: Part,
    outs: tuple[Tensor, Tensor | None],
    n2_grads: Tensor,
    grads: ReferGrads,
    first: bool,
    scratch: Scratch,
) -> Tensor:
    """Gradient of the e2 weights, (g, h, s, l, m); adds to the gradient of n2_values."""
    g, h, s, l, m = part.e2_weights.shape
    values = part.place.take(inputs.n2_values, None)
    v = values.shape[-1]
    values = padded(values, "n2_values", scratch).flatten(0, 1)  # gh m vw
    above = part.place.take(n2_grads, 1).transpose(1, 2)
    above = padded(above, "n2_out_grads", scratch).flatten(0, 1)  # gh s vw
    n2_weights = sum_weights(part.e2_weights, scratch).flatten(0, 1)  # gh s m
    found = torch.bmm(n2_weights.transpose(1, 2), above).view(g, h, m, -1)[..., :v]
    value_grads = part.place.take(grads.n2_values, None)
    if first:
        value_grads.copy_(found)
    else:
        value_grads.add_(found)
    per_n2 = torch.bmm(above, values.transpose(1, 2), out=n2_weights)
    delta = scratch("delta", g, h, s, l, m)
    delta.copy_(per_n2.view(g, h, s, 1, m).expand_as(delta))
    wide, per_head = outs
    flat = delta.view(g, h * s, l * m)
    torch.baddbmm(flat, wide, part.wide.transpose(1, 2), out=flat)
    if per_head is not None and part.values is not None:
        flat = delta.view(g * h, s, l * m)
        torch.baddbmm(flat, per_head, part.values.transpose(1, 2), out=flat)
    return delta


def _add_product(total: Tensor, left: Tensor, right: Tensor, first: bool) -> None:
    if first:
        torch.bmm(left, right, out=total)
    else:
        torch.baddbmm(total, left, right, out=total)


def _value_sums(
    part: Part, sums: Collected, outs: tuple[Tensor, Tensor | None], first: bool
) -> None:
    g, h, s, _, _ = part.e2_weights.shape
    wide, per_head = outs
    weights = part.e2_weights.view(g, h * s, -1)
    _add_product(sums.wide[part.local.graphs], weights.transpose(1, 2), wide, first)
    if per_head is not None and sums.values is not None:
        total = sums.values.unflatten(0, (-1, h))[part.local.graphs].flatten(0, 1)
        weights = part.e2_weights.view(g * h, s, -1)
        _add_product(total, weights.transpose(1, 2), per_head, first)


def _logit_grads(part: Part, delta: Tensor, factor_grads: Tensor, scratch: Scratch) -> None:
    """From weights to logits: `delta` in place, and the gradient of the n2 factors."""
    g, h, s, l, m = delta.shape
    if part.given_n2 is None or part.n2_softmax is None:
        rows = delta.view(g * h * s, l * m)
        softmax_backward(rows, part.e2_weights.view_as(rows), rows)
        factor_grads.copy_(sum_weights(delta, scratch))
        return
    product = torch.mul(delta, part.given_n2, out=part.e2_weights)
    above = product.sum(dim=-2)  # g h s m
    factor_grads.copy_(softmax_backward(above, part.n2_softmax, torch.empty_like(above)))
    delta.mul_(part.n2_softmax.unsqueeze(-2))
    softmax_backward(delta, part.given_n2, delta, dim=-2)


def _key_sums(
    inputs: ReferInputs, part: Part, sums: Collected, delta: Tensor, grads: ReferGrads, first: bool
) -> None:
    g, h, s, l, m = delta.shape
    u = inputs.keys.shape[1]
    flat = delta.view(g * u, h // u * s, l * m)
    query_grads = part.place.take(grads.queries, 1)
    found = torch.bmm(flat, part.keys).view(g, h, s, -1)
    query_grads.copy_(found[..., : query_grads.shape[-1]].transpose(1, 2))
    total = sums.keys.unflatten(0, (-1, u))[part.local.graphs].flatten(0, 1)
    _add_product(total, flat.transpose(1, 2), part.queries, first)


def _scatter(inputs: ReferInputs, sums: Collected, grads: ReferGrads, chunk: Chunk) -> None:
    """Gradients of keys, values and addresses, once all sources of the graphs are through."""
    u = inputs.keys.shape[1]
    d, e, a = inputs.queries.shape[-1], inputs.values.shape[-1], inputs.addresses.shape[-1]
    _node_major(sums.keys[..., :d].unflatten(0, (-1, u)), chunk.take(grads.keys, None))
    _node_major(sums.wide[..., :a], chunk.take(grads.addresses, None))
    values = chunk.take(grads.values, None)
    if sums.values is None:
        _node_major(sums.wide[..., a : a + e].unsqueeze(1), values)
    else:
        _node_major(sums.values[..., :e].unflatten(0, (-1, u)), values)
