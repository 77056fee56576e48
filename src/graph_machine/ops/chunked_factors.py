"""The two n2 factors of one chunk, and their gradients; shared by attention and referral.

Edge factors live node-major, (g, s, h, m), because that is how mixing a node's own k addresses
comes out of one batched product; node factors and their sum live head-major, (g, h, s, m).
g graphs and s source nodes of a chunk, h head, k slot of e1, m target.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from graph_machine.ops.chunks import Chunk, Scratch, pad_width, padded
from graph_machine.ops.core import FactorInputs

# Low enough that its exponential is 0, high enough that sums of it stay finite.
MASKED = -1e30


@functools.cache
def below(eps: float, dtype: torch.dtype) -> float:
    """The number under eps: `x > below(eps)` is `x >= eps`, where a clamp passes gradients."""
    return torch.nextafter(torch.tensor(eps, dtype=dtype), torch.tensor(0.0, dtype=dtype)).item()


@dataclass(frozen=True)
class EdgeFactor:
    """The edge factor of a chunk and, where they are kept, the stages before it; g s h m."""

    factors: Tensor
    logits: Tensor  # before temperatures
    mixed: Tensor  # mixed addresses
    floor: Tensor  # the same, clamped


def edge_factor(inputs: FactorInputs, chunk: Chunk, scratch: Scratch, keep: bool) -> EdgeFactor:
    """Without `keep` all stages share one buffer, and only `factors` may be read."""
    assert inputs.e1_weights is not None
    assert inputs.e1_addresses is not None
    weights = chunk.take(inputs.e1_weights, 1).flatten(0, 1)  # gs h k
    addresses = chunk.take(inputs.e1_addresses, 1).flatten(0, 1)  # gs k m
    shape = (chunk.num_graphs, chunk.num_sources, weights.shape[1], addresses.shape[2])
    flat = (shape[0] * shape[1], *shape[2:])
    mixed = torch.bmm(weights, addresses, out=scratch("mixed", *flat)).view(shape)
    floor = logits = mixed
    if not inputs.logit_space:
        out = scratch("edge_floor", *shape) if keep else mixed
        floor = torch.clamp_min(mixed, inputs.eps, out=out)
        logits = torch.log(floor, out=scratch("edge_logits", *shape) if keep else mixed)
    if inputs.edge_temps is None:
        factors = logits
    else:
        out = scratch("edge_factors", *shape) if keep else logits
        temps = chunk.take(inputs.edge_temps, 1).unsqueeze(-1)
        factors = torch.mul(logits, temps, out=out)
    if inputs.mask is not None:
        blocked = ~chunk.take(inputs.mask, 1).unsqueeze(2)  # g s 1 m
        if keep and factors is logits:
            factors = scratch("edge_factors", *shape).copy_(logits)
        factors.masked_fill_(blocked, MASKED)
    return EdgeFactor(factors, logits, mixed, floor)


def node_factor(inputs: FactorInputs, chunk: Chunk, scratch: Scratch) -> Tensor:
    """Node factors (g, h, s, m)."""
    assert inputs.n1_queries is not None
    assert inputs.n2_keys is not None
    queries = padded(chunk.take(inputs.n1_queries, 2), "node_queries", scratch).flatten(0, 1)
    keys = padded(chunk.take(inputs.n2_keys, None), "node_keys", scratch).flatten(0, 1)  # gh m dw
    out = scratch("n2_factors", queries.shape[0], queries.shape[1], keys.shape[1])
    shape = (chunk.num_graphs, -1, chunk.num_sources, keys.shape[1])
    factors = torch.bmm(queries, keys.transpose(1, 2), out=out).view(shape)
    if inputs.mask is not None:
        factors.masked_fill_(~chunk.take(inputs.mask, 1).unsqueeze(1), MASKED)  # g 1 s m
    return factors


def entropy_sum(factors: Tensor, row_weights: Tensor, scratch: Scratch) -> Tensor:
    """Weighted sum over rows of the entropy of softmax(factors).

    With D = max - F and p = softmax(F), H = <p, D> - log max p: two terms that are never negative,
    so nothing cancels.
    """
    weights = torch.softmax(factors, dim=-1, out=scratch("probs", *factors.shape))
    entropy = weights.amax(dim=-1).log_().neg_()
    gaps = torch.sub(
        factors.amax(dim=-1, keepdim=True), factors, out=scratch("gaps", *factors.shape)
    )
    entropy += gaps.mul_(weights).sum(dim=-1)
    return (entropy * row_weights).sum()


def add_entropy_grad(
    grads: Tensor, factors: Tensor, row_weights: Tensor, scratch: Scratch
) -> Tensor:
    """grads += row weight * dH/dF, where dH/dF = -p (F - <p, F>)."""
    weights = torch.softmax(factors, dim=-1, out=scratch("probs", *factors.shape))
    slope = softmax_backward(factors, weights, scratch("gaps", *factors.shape))
    return grads.addcmul_(slope, row_weights.unsqueeze(-1), value=-1.0)


def softmax_backward(grads: Tensor, weights: Tensor, out: Tensor, dim: int = -1) -> Tensor:
    """weights * (grads - sum(grads * weights)), in one pass; `out` may be `grads`."""
    return torch.ops.aten._softmax_backward_data.out(
        grads, weights, dim, weights.dtype, grad_input=out
    )


def forward_factors(
    inputs: FactorInputs, chunk: Chunk, scratch: Scratch, entropies: Tensor
) -> Tensor:
    """n2 factors (g, h, s, m) of a chunk; adds to the two `entropies` if they are asked for."""
    ask = inputs.entropy_weights
    rows = None if ask is None else chunk.take(ask, 1)  # g s
    edge = edge_factor(inputs, chunk, scratch, keep=False).factors if inputs.edge else None
    if edge is not None and rows is not None:
        entropies[0] += entropy_sum(edge, rows.unsqueeze(2), scratch)
    if not inputs.node:
        assert edge is not None
        g, s, h, m = edge.shape
        return scratch("n2_factors", g, h, s, m).copy_(edge.transpose(1, 2))
    node = node_factor(inputs, chunk, scratch)
    if rows is not None:
        entropies[1] += entropy_sum(node, rows.unsqueeze(1), scratch)
    return node if edge is None else node.add_(edge.transpose(1, 2))


@dataclass(frozen=True)
class Recomputed:
    """What the backward pass of a chunk needs again."""

    n2_factors: Tensor  # g h s m
    edge: EdgeFactor | None
    node_factors: Tensor | None  # g h s m; only where its entropy is asked for


def recompute_factors(inputs: FactorInputs, chunk: Chunk, scratch: Scratch) -> Recomputed:
    edge = edge_factor(inputs, chunk, scratch, keep=True) if inputs.edge else None
    if not inputs.node:
        assert edge is not None
        g, s, h, m = edge.factors.shape
        total = scratch("n2_factors", g, h, s, m).copy_(edge.factors.transpose(1, 2))
        return Recomputed(total, edge, None)
    node = node_factor(inputs, chunk, scratch)
    if edge is None:
        return Recomputed(node, None, node)
    if inputs.entropy_weights is None:
        return Recomputed(node.add_(edge.factors.transpose(1, 2)), edge, None)
    total = torch.add(node, edge.factors.transpose(1, 2), out=scratch("n2_sum", *node.shape))
    return Recomputed(total, edge, node)


def backward_factors(
    inputs: FactorInputs,
    again: Recomputed,
    grads: FactorInputs,
    n2_grads: Tensor,
    entropy_grads: Tensor | None,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    """Fill `grads` for a chunk from the gradient of its n2 factors; may overwrite `n2_grads`."""
    ask = inputs.entropy_weights
    rows = None if ask is None or entropy_grads is None else chunk.take(ask, 1)  # g s
    if again.edge is not None:
        _edge_backward(inputs, again, grads, n2_grads, entropy_grads, rows, chunk, scratch)
    if inputs.node:
        if rows is not None and entropy_grads is not None:
            assert again.node_factors is not None
            weights = rows.unsqueeze(1) * entropy_grads[1]
            add_entropy_grad(n2_grads, again.node_factors, weights, scratch)
        assert inputs.n1_queries is not None
        assert inputs.n2_keys is not None
        assert grads.n1_queries is not None
        assert grads.n2_keys is not None
        product_backward(
            n2_grads,
            (inputs.n1_queries, inputs.n2_keys),
            (grads.n1_queries, grads.n2_keys),
            ("node_queries", "node_keys"),
            chunk,
            scratch,
        )


def product_backward(
    grads: Tensor,
    inputs: tuple[Tensor, Tensor],
    outs: tuple[Tensor, Tensor],
    names: tuple[str, str],
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    """Gradients of queries and keys from that of their product, (g, h, s, m).

    The padded queries and keys still lie in the scratch memory, under their `names`.
    """
    g, h, s, m = grads.shape
    width, wide = inputs[0].shape[-1], pad_width(inputs[0].shape[-1])
    flat = grads.flatten(0, 1)
    queries, keys = scratch(names[0], g * h, s, wide), scratch(names[1], g * h, m, wide)
    found = torch.bmm(flat, keys, out=scratch("query_grads", g * h, s, wide))
    chunk.take(outs[0], 2).copy_(found.view(g, h, s, wide)[..., :width])
    found = torch.bmm(flat.transpose(1, 2), queries, out=scratch("key_grads", g * h, m, wide))
    found = found.view(g, h, m, wide)[..., :width]
    if chunk.first:
        chunk.take(outs[1], None).copy_(found)
    else:
        chunk.take(outs[1], None).add_(found)


def _edge_backward(
    inputs: FactorInputs,
    again: Recomputed,
    grads: FactorInputs,
    n2_grads: Tensor,
    entropy_grads: Tensor | None,
    rows: Tensor | None,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    assert again.edge is not None
    factors, logits = again.edge.factors, again.edge.logits
    assert inputs.e1_weights is not None
    assert inputs.e1_addresses is not None
    assert grads.e1_weights is not None
    assert grads.e1_addresses is not None
    delta = scratch("edge_grads", *factors.shape).copy_(n2_grads.transpose(1, 2))
    if rows is not None and entropy_grads is not None:
        weights = rows.unsqueeze(2) * entropy_grads[0]
        add_entropy_grad(delta, factors, weights, scratch)
    if inputs.edge_temps is not None:
        assert grads.edge_temps is not None
        product = torch.mul(delta, logits, out=scratch("gaps", *delta.shape))
        chunk.take(grads.edge_temps, 1).copy_(product.sum(dim=-1))
        delta.mul_(chunk.take(inputs.edge_temps, 1).unsqueeze(-1))
    if not inputs.logit_space:
        mixed = again.edge.mixed
        delta.div_(again.edge.floor)
        delta = torch.ops.aten.threshold_backward.grad_input(
            delta, mixed, below(inputs.eps, mixed.dtype), grad_input=delta
        )
    flat = delta.flatten(0, 1)  # gs h m
    weights = chunk.take(inputs.e1_weights, 1).flatten(0, 1)
    addresses = chunk.take(inputs.e1_addresses, 1).flatten(0, 1)
    weight_grads = chunk.take(grads.e1_weights, 1)
    weight_grads.copy_(torch.bmm(flat, addresses.transpose(1, 2)).view_as(weight_grads))
    address_grads = chunk.take(grads.e1_addresses, 1).flatten(0, 1)
    torch.bmm(weights.transpose(1, 2), flat, out=address_grads)
