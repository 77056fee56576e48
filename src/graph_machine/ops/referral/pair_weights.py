"""The core of joint and conditional referral: weights over all (n2, e2) pairs of a chunk.

Pairs are flattened slot-major, c = (l, m), so that the n2 factors are added, and weights summed
over slots, along contiguous memory. Keys and values of e2 have `u` = h sets, or one for all heads
where the projections are absorbed into queries and outputs. A chunk is cut into smaller ones, so
that the weights of one stay in the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graph_machine.ops.chunked_factors import softmax_backward
from graph_machine.ops.chunks import Chunk, Scratch, within


@dataclass(frozen=True)
class Pairs:
    """A chunk's queries and its graphs' keys and values, padded; or the gradients of these."""

    queries: Tensor  # g h s d
    keys: Tensor  # gu c d
    wide: Tensor  # g c w: [addresses | values if shared | 0]
    values: Tensor | None  # gh c e, if not shared

    @property
    def sets(self) -> int:
        return self.keys.shape[0] // self.wide.shape[0]


@dataclass(frozen=True)
class Outs:
    """What the weights collect, or the gradients of that."""

    wide: Tensor  # g h s w
    values: Tensor | None  # g h s e
    n2: Tensor  # g h s m: the n2 weights


@dataclass(frozen=True)
class Setting:
    """How weights are made, and the chunk they are made for."""

    slots: int
    conditional: bool
    chunk: Chunk
    scratch: Scratch


def forward_pairs(n2_factors: Tensor, data: Pairs, outs: Outs, setting: Setting) -> None:
    """Fill `outs` from the n2 factors (g, h, s, m)."""
    for part in _parts(n2_factors, data, setting):
        local, weights = part.local, part.e2_weights
        g, h, s, _, _ = weights.shape
        flat = weights.view(g, h * s, -1)
        found = torch.bmm(
            flat, part.wide, out=setting.scratch("found", g, h * s, outs.wide.shape[-1])
        )
        local.take(outs.wide, 2).copy_(found.view(g, h, s, -1))
        if part.values is not None and outs.values is not None:
            found = torch.bmm(weights.view(g * h, s, -1), part.values)
            local.take(outs.values, 2).copy_(found.view(g, h, s, -1))
        local.take(outs.n2, 2).copy_(weights.sum(dim=-2))


def backward_pairs(
    n2_factors: Tensor,
    data: Pairs,
    out_grads: Outs,
    n2_weights: Tensor,
    factor_grads: Tensor,
    grads: Pairs,
    setting: Setting,
) -> None:
    """Fill the n2 weights, the gradient of the n2 factors, and `grads` (keys and values summed)."""
    for part in _parts(n2_factors, data, setting):
        local = part.local
        local.take(n2_weights, 2).copy_(part.e2_weights.sum(dim=-2))
        first = setting.chunk.first and local.first
        delta = _weight_grads(part, out_grads, grads, first, setting.scratch)
        local.take(factor_grads, 2).copy_(_logit_grads(part, delta))
        _key_grads(part, delta, grads, first)


@dataclass(frozen=True)
class Part:
    """Some graphs, or some sources, of a chunk, and their weights."""

    local: Chunk
    queries: Tensor  # gu (h/u s) d
    keys: Tensor  # gu c d
    wide: Tensor  # g c w
    values: Tensor | None  # gh c e
    e2_weights: Tensor  # g h s l m
    given_n2: Tensor | None  # conditional: weights of e2 given n2, g h s l m
    n2_softmax: Tensor | None  # conditional: softmax of the n2 factors, g h s m


def _of_graphs(tensor: Tensor, sets: int, local: Chunk) -> Tensor:
    """The part of (gu, ...) that belongs to some of the graphs."""
    return tensor.unflatten(0, (-1, sets))[local.graphs].flatten(0, 1)


def _parts(n2_factors: Tensor, data: Pairs, setting: Setting) -> Iterator[Part]:
    h, m, l, u = n2_factors.shape[1], n2_factors.shape[3], setting.slots, data.sets
    scratch = setting.scratch
    for _, local in within(setting.chunk, h * l * m, n2_factors.device):
        g, s = local.num_graphs, local.num_sources
        queries = local.take(data.queries, 2).reshape(g * u, h // u * s, -1)
        keys = _of_graphs(data.keys, u, local)
        factors = local.take(n2_factors, 2)  # g h s m
        logits = scratch("e2_logits", g, h, s, l, m)
        flat = logits.view(g * u, h // u * s, l * m)
        weights, given, softmax = logits, None, None
        if setting.conditional:
            torch.bmm(queries, keys.transpose(1, 2), out=flat)
            given = torch.softmax(logits, dim=-2, out=logits)
            softmax = torch.softmax(factors, dim=-1)
            out = scratch("e2_weights", g, h, s, l, m)
            weights = torch.mul(given, softmax.unsqueeze(-2), out=out)
        else:
            logits.copy_(factors.unsqueeze(-2).expand_as(logits))
            torch.baddbmm(flat, queries, keys.transpose(1, 2), out=flat)
            rows = logits.view(g * h * s, l * m)
            torch.softmax(rows, dim=-1, out=rows)
        values = None if data.values is None else _of_graphs(data.values, u, local)
        wide = data.wide[local.graphs]
        yield Part(local, queries, keys, wide, values, weights, given, softmax)


def _add_product(total: Tensor, left: Tensor, right: Tensor, first: bool) -> None:
    if first:
        torch.bmm(left, right, out=total)
    else:
        torch.baddbmm(total, left, right, out=total)


def _weight_grads(
    part: Part, out_grads: Outs, grads: Pairs, first: bool, scratch: Scratch
) -> Tensor:
    """Gradient of the e2 weights, (g, h, s, l, m); adds to those of the values."""
    local, (g, h, s, l, m) = part.local, part.e2_weights.shape
    delta = scratch("delta", g, h, s, l, m)
    delta.copy_(local.take(out_grads.n2, 2).unsqueeze(-2).expand_as(delta))
    above = local.take(out_grads.wide, 2).reshape(g, h * s, -1)
    flat = delta.view(g, h * s, l * m)
    torch.baddbmm(flat, above, part.wide.transpose(1, 2), out=flat)
    weights = part.e2_weights.view(g, h * s, l * m)
    _add_product(grads.wide[local.graphs], weights.transpose(1, 2), above, first)
    if part.values is not None and out_grads.values is not None and grads.values is not None:
        above = local.take(out_grads.values, 2).reshape(g * h, s, -1)
        flat = delta.view(g * h, s, l * m)
        torch.baddbmm(flat, above, part.values.transpose(1, 2), out=flat)
        weights = part.e2_weights.view(g * h, s, l * m)
        total = _of_graphs(grads.values, h, local)
        _add_product(total, weights.transpose(1, 2), above, first)
    return delta


def _logit_grads(part: Part, delta: Tensor) -> Tensor:
    """From weights to logits: `delta` in place; returns the gradient of the n2 factors."""
    g, h, s, l, m = delta.shape
    if part.given_n2 is None or part.n2_softmax is None:
        rows = delta.view(g * h * s, l * m)
        softmax_backward(rows, part.e2_weights.view_as(rows), rows)
        return delta.sum(dim=-2)
    above = torch.mul(delta, part.given_n2, out=part.e2_weights).sum(dim=-2)  # g h s m
    delta.mul_(part.n2_softmax.unsqueeze(-2))
    softmax_backward(delta, part.given_n2, delta, dim=-2)
    return softmax_backward(above, part.n2_softmax, torch.empty_like(above))


def _key_grads(part: Part, delta: Tensor, grads: Pairs, first: bool) -> None:
    local, (g, h, s, l, m) = part.local, delta.shape
    u = grads.sets
    flat = delta.view(g * u, h // u * s, l * m)
    local.take(grads.queries, 2).copy_(torch.bmm(flat, part.keys).view(g, h, s, -1))
    total = _of_graphs(grads.keys, u, local)
    _add_product(total, flat.transpose(1, 2), part.queries, first)
