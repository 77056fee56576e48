"""The cores in plain torch, for every device and dtype without a kernel.

The forward pass computes blocks of graphs, or of one graph's source nodes, and keeps only outputs.
The backward pass recomputes each block, then its gradients. The weights of a block are the largest
tensor: `chunk_numbers` bounds them.

Given edges are indices here, too: as e1 (`mixture`), and where joint or conditional referral
collects them. The latter needs a dense row for the empty edge.

Letters: g graphs and s sources of a block, h head, l slot of e2, m target n2, u sets of e2 keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graph_machine.ops.backend import Implementation, chunk_numbers
from graph_machine.ops.core import (
    LEARNED,
    KernelInputs,
    KernelOuts,
    beside,
    empty_outs,
    mixture,
    mixture_grads,
)
from graph_machine.ops.inputs import NO_EDGE

# Low enough that its exponential is 0, high enough that sums of it stay finite.
MASKED = -1e30
# Which axis of a tensor counts sources; the others belong to targets and are whole in a block.
SOURCE_AXES = {"n1_queries": 2} | dict.fromkeys(
    ("e1_weights", "e1_addresses", "edge_temps", "e2_queries", "mask", "entropy_weights", "given"),
    1,
)
AXES = tuple(SOURCE_AXES.get(name) for name in KernelInputs._fields)
Part = tuple[slice, slice]  # graphs, sources


def _parts(x: KernelInputs) -> Iterator[Part]:
    """Even groups of whole graphs if these fit, otherwise sources of one graph."""
    b, h, n, m = x.sizes
    size, per_source = chunk_numbers(x.n2_values.device), h * m * x.slots
    if per_source * n <= size:
        groups = -(-b // (size // (per_source * n)))
        step = -(-b // groups)
        yield from ((slice(i, i + step), slice(0, n)) for i in range(0, b, step))
        return
    step = max(1, size // per_source)
    for i in range(b):
        yield from ((slice(i, i + 1), slice(j, j + step)) for j in range(0, n, step))


def _cut(tensor: Tensor, axis: int | None, part: Part) -> Tensor:
    """The block's part; axes of size 1 broadcast."""
    graphs, sources = part
    found = tensor if tensor.shape[0] == 1 else tensor[graphs]
    if axis is None or found.shape[axis] == 1:
        return found
    return found[:, sources] if axis == 1 else found[:, :, sources]


def _block(x: KernelInputs, part: Part) -> KernelInputs:
    tensors = (_cut(y, axis, part) if isinstance(y, Tensor) else y for y, axis in zip(x, AXES))
    return KernelInputs(*tensors)  # type: ignore[arg-type]


def _with_collected(x: KernelInputs) -> KernelInputs:
    """With the addresses that are collected as they are: mixed by n2 (b m h a), or by slot."""
    if x.e2_addresses is None:
        return x
    if x.own_weights is not None:
        return x._replace(e2_addresses=mixture(x.own_weights, x.e2_addresses, *beside(x)))
    even = beside(x)[2]
    if even is None:
        return x
    (b, m, _, a), made = x.e2_addresses.shape, x.e2_addresses
    return x._replace(e2_addresses=torch.cat([made, even.expand(b, m, 1, a)], dim=2))


def _collected_grads(x: KernelInputs, grads: KernelInputs) -> KernelInputs:
    """Gradients of `_with_collected`."""
    if x.e2_addresses is None:
        return grads
    above = _whole(grads.e2_addresses)
    if x.own_weights is not None:
        found = mixture_grads(x.own_weights, x.e2_addresses, *beside(x), above)
        return grads._replace(own_weights=found[0], e2_addresses=found[1])
    return grads._replace(e2_addresses=above[:, :, : x.e2_addresses.shape[2]].contiguous())


@dataclass(frozen=True)
class Weights:
    """Everything that forward computes for a block and backward needs again."""

    mixed: Tensor | None  # mixed addresses, g s h m
    logits: Tensor | None  # the same before temperatures
    edge: Tensor | None  # the edge factor, g s h m
    node: Tensor | None  # the node factor, g h s m
    n2: Tensor | None  # conditional: weights over n2, g h s m
    given_n2: Tensor | None  # conditional: weights over e2 given n2, g h s l m
    pairs: Tensor  # g h s l m


def _weigh(x: KernelInputs, given: "Given | None") -> Weights:
    """Both factors, and the softmax over n2 or over pairs."""
    mixed = logits = edge = node = None
    if x.e1_weights is not None and x.e1_addresses is not None:
        logits = mixed = mixture(x.e1_weights, x.e1_addresses, *beside(x))
        if not x.logit_space:
            logits = mixed.clamp_min(x.eps).log_()
        edge = logits if x.edge_temps is None else logits * x.edge_temps.unsqueeze(-1)
        if x.mask is not None:
            edge = edge.masked_fill(~x.mask.unsqueeze(2), MASKED)
    if x.n1_queries is not None and x.n2_keys is not None:
        node = torch.matmul(x.n1_queries, x.n2_keys.mT)
        if x.mask is not None:
            node = node.masked_fill_(~x.mask.unsqueeze(1), MASKED)
    total = node if edge is None else edge.transpose(1, 2) if node is None else None
    if total is None:
        assert node is not None
        assert edge is not None
        total = node + edge.transpose(1, 2)
    real = None if x.mask is None else x.mask.any(dim=-1)[:, None, :, None]  # looks somewhere
    if x.conditional:
        given_n2 = _e2_factors(x, given).softmax(dim=3)
        n2 = total.softmax(dim=-1)
        n2 = n2 if real is None else n2.mul_(real)
        return Weights(mixed, logits, edge, node, n2, given_n2, given_n2 * n2.unsqueeze(3))
    if x.e2_keys is None:
        pairs = total.softmax(dim=-1).unsqueeze(3)
    else:
        pairs = _e2_factors(x, given).add_(total.unsqueeze(3))
        torch.softmax(flat := pairs.flatten(3), dim=-1, out=flat)
    if real is not None:
        pairs = pairs.mul_(real.unsqueeze(-1))
    return Weights(mixed, logits, edge, node, None, None, pairs)


class Given(NamedTuple):
    """Given edges as what joint and conditional referral collect: slots after those with rows."""

    targets: Tensor  # g l m; 0 where there is no edge
    there: Tensor  # g l m: whether there is one
    slots: slice
    scale: float

    def flat_targets(self, like: Tensor) -> Tensor:
        """(g, h, s, l m) for gradients or outputs (g, h, s, .)."""
        return self.targets.flatten(1)[:, None, None].expand(*like.shape[:3], -1)

    def masses(self, like: Tensor) -> Tensor:
        """g 1 1 l m."""
        return (self.there * self.scale).to(like.dtype)[:, None, None]

    def others(self, x: Tensor) -> Tensor:
        """Slots with rows of addresses, of a tensor (g, h, s, l, m)."""
        return torch.cat([x[..., : self.slots.start, :], x[..., self.slots.stop :, :]], dim=3)


def _given(x: KernelInputs, part: Part) -> Given | None:
    """Of the whole inputs: a block of sources collects from all targets."""
    if x.given is None or x.e2_values is None:
        return None
    found, stop = _cut(x.given, None, part).mT, x.slots - x.empty
    slots = slice(stop - found.shape[1], stop)
    return Given(found.clamp_min(0).long(), found >= 0, slots, x.given_scale)


def _e2_factors(x: KernelInputs, given: Given | None) -> Tensor:
    """g h s l m."""
    queries, keys = _e2_products(x)
    g, s, h, _ = _whole(x.e2_queries).shape
    factors = torch.matmul(queries, keys.mT).view(g, h, s, x.slots, -1)
    if given is not None:
        factors[..., given.slots, :].masked_fill_(~given.there[:, None, None], NO_EDGE)
    return factors


def _e2_products(x: KernelInputs) -> tuple[Tensor, Tensor]:
    """Queries and keys of e2, by set: (g, u, h/u s, e) and (g, u, l m, e)."""
    keys = _whole(x.e2_keys)
    queries = _whole(x.e2_queries).transpose(1, 2)
    return queries.reshape(*keys.shape[:2], -1, keys.shape[-1]), _slot_major(keys)


def _slot_major(tensor: Tensor) -> Tensor:
    """(..., m, l, x) to (..., l m, x)."""
    return tensor.transpose(-3, -2).flatten(-3, -2)


def _node_major(flat: Tensor, m: int) -> Tensor:
    """(..., l m, x) to (..., m, l, x)."""
    return flat.unflatten(-2, (-1, m)).transpose(-3, -2)


def _whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _entropy(factors: Tensor, row_weights: Tensor) -> Tensor:
    """Weighted sum over rows of the entropy of softmax(factors)."""
    logs = factors.log_softmax(dim=-1)
    return -((logs.exp() * logs.clamp_min(-1e4)).sum(dim=-1) * row_weights).sum()


def _entropy_slope(factors: Tensor, row_weights: Tensor) -> Tensor:
    """The gradient of `_entropy`: -p (F - <p, F>) by row."""
    weights = factors.softmax(dim=-1)
    return _softmax_slope(factors, weights) * -row_weights.unsqueeze(-1)


def _softmax_slope(above: Tensor, weights: Tensor, dim: int = -1) -> Tensor:
    """weights * (above - sum(above * weights)), in one pass."""
    return torch.ops.aten._softmax_backward_data(above, weights, dim, weights.dtype)


def _carried(x: KernelInputs, together: bool) -> Tensor:
    """What pairs carry for all heads: [addresses | values, if `together` | 0], (g, l m, width).

    Widths are multiples of 16: MKL is several times slower at 81 or 89.
    """
    parts = [_slot_major(_whole(x.e2_addresses))]
    if together:
        parts.append(_slot_major(_whole(x.e2_values).squeeze(1)))
    return _side_by_side(parts)


def _side_by_side(parts: list[Tensor]) -> Tensor:
    width = sum(part.shape[-1] for part in parts)
    filling = parts[0].new_zeros(1).expand(*parts[0].shape[:-1], -width % 16)
    return torch.cat([*parts, filling], dim=-1)


def _shared(x: KernelInputs) -> bool:
    """One set of e2 values for all heads."""
    return x.e2_values is not None and x.e2_values.shape[1] == 1


def _collect(
    x: KernelInputs, given: Given | None, weights: Tensor, outs: KernelOuts, part: Part
) -> None:
    """What the weights (g, h, s, l, m) carry, into the block's part of `outs`."""
    g, h, s, _, _ = weights.shape
    n2_weights = weights.squeeze(3) if x.slots == 1 else weights.sum(dim=3)
    _cut(outs.features, 1, part).copy_(torch.matmul(n2_weights, x.n2_values).transpose(1, 2))
    _, c, a = x.widths
    if x.own_weights is not None:
        found = torch.matmul(n2_weights, _whole(x.e2_addresses).transpose(1, 2))
        _cut(outs.addresses, 1, part).copy_(found.transpose(1, 2))
    if x.e2_values is None:
        return
    together = given is None and _shared(x)
    with_rows = weights if given is None else given.others(weights)
    carried = _carried(x, together)
    found = torch.matmul(with_rows.flatten(3).flatten(1, 2), carried).view(g, h, s, -1)
    if given is not None:
        masses = (weights[..., given.slots, :] * given.masses(weights)).flatten(3)
        found.scatter_add_(3, given.flat_targets(found), masses)
    _cut(outs.addresses, 1, part).copy_(found[..., :a].transpose(1, 2))
    if not together:
        found = torch.matmul(weights.flatten(3), _slot_major(x.e2_values))
        a = 0
    _cut(outs.e2, 1, part).copy_(found[..., a : a + c].transpose(1, 2))


def forward(inputs: KernelInputs) -> KernelOuts:
    inputs = _with_collected(inputs)
    outs = empty_outs(inputs)
    outs.entropies.zero_()
    for part in _parts(inputs):
        x, given = _block(inputs, part), _given(inputs, part)
        made = _weigh(x, given)
        if x.entropy_weights is not None:
            if made.edge is not None:
                outs.entropies[0] += _entropy(made.edge, x.entropy_weights.unsqueeze(2))
            if made.node is not None:
                outs.entropies[1] += _entropy(made.node, x.entropy_weights.unsqueeze(1))
        _collect(x, given, made.pairs, outs, part)
    return outs


def backward(inputs: KernelInputs, outs: KernelOuts, above: KernelOuts) -> KernelInputs:
    collected = _with_collected(inputs)
    made = (None if x is None else torch.zeros_like(x) for x in collected[:LEARNED])
    grads = KernelInputs(*made, *inputs[LEARNED:])  # type: ignore[arg-type]
    for part in _parts(inputs):
        x, found, given = _block(collected, part), _block(grads, part), _given(inputs, part)
        parts = [_cut(grad, 1, part).transpose(1, 2) for grad in above[:3]]  # g h s .
        weights = _weigh(x, given)
        slope = _collect_backward(x, given, weights.pairs, parts, found)
        total = _logits_backward(x, weights, slope, found)
        _factors_backward(x, weights, total, above.entropies, found)
    return _collected_grads(inputs, grads)


def _add(total: Tensor | None, found: Tensor) -> None:
    _whole(total).add_(found)


def _collect_backward(
    x: KernelInputs, given: Given | None, weights: Tensor, above: list[Tensor], grads: KernelInputs
) -> Tensor:
    """Gradient of the weights, (g, h, s, l, m); adds to those of what they collect."""
    features, e2, addresses = above
    g, h, s, slots, m = weights.shape
    n2_weights = weights.squeeze(3) if slots == 1 else weights.sum(dim=3)
    _add(grads.n2_values, torch.matmul(n2_weights.mT, features))
    n2_slope = torch.matmul(features, x.n2_values.mT)
    if x.own_weights is not None:
        n2_slope += torch.matmul(addresses, _whole(x.e2_addresses).permute(0, 2, 3, 1))
        _add(grads.e2_addresses, torch.matmul(n2_weights.mT, addresses).transpose(1, 2))
    slope = n2_slope.unsqueeze(3)
    if x.e2_values is None:
        return slope
    (_, c, a), together = x.widths, given is None and _shared(x)
    flat = (weights if given is None else given.others(weights)).flatten(3).flatten(1, 2)
    grad = _side_by_side([addresses, e2] if together else [addresses]).view(g, h * s, -1)
    found = torch.matmul(grad, _carried(x, together).mT).unflatten(2, (-1, m)).unflatten(1, (h, s))
    carried = _node_major(torch.matmul(flat.mT, grad), m)  # g m l width
    _add(grads.e2_addresses, carried[..., :a])
    if given is not None:
        masses = addresses.gather(3, given.flat_targets(addresses)).unflatten(3, (-1, m))
        first = given.slots.start
        ends = found[..., :first, :], found[..., first:, :]
        found = torch.cat([ends[0], masses * given.masses(masses), ends[1]], dim=3)
    if together:
        _add(grads.e2_values, carried[..., a : a + c].unsqueeze(1))
    else:
        found.flatten(3).add_(torch.matmul(e2, _slot_major(x.e2_values).mT))
        values = _node_major(torch.matmul(weights.flatten(3).mT, e2), m)  # g h m l c
        _add(grads.e2_values, values.sum(dim=1, keepdim=True) if _shared(x) else values)
    return found.add_(slope)


def _logits_backward(x: KernelInputs, made: Weights, slope: Tensor, grads: KernelInputs) -> Tensor:
    """Gradient of the sum of factors, (g, h, s, m), from that of the weights; e2 on the way."""
    if made.n2 is not None and made.given_n2 is not None:
        total = _softmax_slope((slope * made.given_n2).sum(dim=3), made.n2)
        pulls = _softmax_slope(slope * made.n2.unsqueeze(3), made.given_n2, dim=3)
    else:
        pulls = _softmax_slope(slope.flatten(3), made.pairs.flatten(3)).view(slope.shape)
        total = pulls.squeeze(3) if x.slots == 1 else pulls.sum(dim=3)
    if x.e2_keys is not None:
        queries, keys = _e2_products(x)
        flat = pulls.view(*queries.shape[:3], -1)
        g, s, h, e = _whole(x.e2_queries).shape
        found = torch.matmul(flat, keys).view(g, h, s, e)
        _add(grads.e2_queries, found.transpose(1, 2))
        _add(grads.e2_keys, _node_major(torch.matmul(flat.mT, queries), total.shape[-1]))
    return total


def _factors_backward(
    x: KernelInputs, made: Weights, total: Tensor, entropy_grads: Tensor | None, grads: KernelInputs
) -> None:
    """From the gradient of the sum of factors to what made them."""
    rows = None if entropy_grads is None else x.entropy_weights
    if made.node is not None:
        slope = total
        if rows is not None and entropy_grads is not None:
            slope = slope + _entropy_slope(made.node, rows.unsqueeze(1) * entropy_grads[1])
        _add(grads.n1_queries, torch.matmul(slope, _whole(x.n2_keys)))
        _add(grads.n2_keys, torch.matmul(slope.mT, _whole(x.n1_queries)))
    if made.edge is None or made.mixed is None or made.logits is None:
        return
    slope = total.transpose(1, 2)  # g s h m
    if rows is not None and entropy_grads is not None:
        slope = slope + _entropy_slope(made.edge, rows.unsqueeze(2) * entropy_grads[0])
    if x.edge_temps is not None:
        _add(grads.edge_temps, (slope * made.logits).sum(dim=-1))
        slope = slope * x.edge_temps.unsqueeze(-1)
    if not x.logit_space:
        slope = slope / made.mixed.clamp_min(x.eps) * (made.mixed >= x.eps)
    weights, addresses = _whole(x.e1_weights), _whole(x.e1_addresses)
    e1_weights, e1_addresses = mixture_grads(weights, addresses, *beside(x), slope)
    _add(grads.e1_weights, e1_weights)
    _add(grads.e1_addresses, e1_addresses)


def serves(inputs: KernelInputs) -> bool:
    """Any call over padded graphs."""
    return inputs.packed is None


ATTEND = Implementation(forward, backward, serves)
