"""The two n2 factors of one chunk, and their gradients; shared by attention and referral.

Edge factors live node-major, (g, s, h, m), because that is how mixing a node's own k addresses
comes out of one batched product; node factors and their sum live head-major, (g, h, s, m).
g graphs and s source nodes of a chunk, h head, k slot of e1, m target.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graph_machine.ops.fused.plan import Chunk, Scratch

# Low enough that its exponential is 0, high enough that sums of it stay finite.
MASKED = -1e30


@dataclass(frozen=True)
class FactorInputs:
    """What decides where n1 looks. Queries hold the node temperature and the 1/sqrt(d)."""

    e1_weights: Tensor | None  # b n h k
    addresses: Tensor | None  # b n k m
    edge_temps: Tensor | None  # b n h
    queries: Tensor | None  # b h n d
    keys: Tensor | None  # b h m d
    mask: Tensor | None  # (b or 1) (n or 1) m
    entropy_weights: Tensor | None  # b n: how much each source counts; None: not asked for
    eps: float
    logit_space: bool

    @property
    def edge(self) -> bool:
        return self.e1_weights is not None

    @property
    def node(self) -> bool:
        return self.queries is not None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        if self.queries is not None:
            assert self.keys is not None
            b, h, n, _ = self.queries.shape
            return b, h, n, self.keys.shape[2]
        assert self.e1_weights is not None
        assert self.addresses is not None
        b, n, h, _ = self.e1_weights.shape
        return b, h, n, self.addresses.shape[-1]


@dataclass
class FactorGrads:
    """Gradients of the tensors of FactorInputs, filled chunk by chunk."""

    e1_weights: Tensor | None
    addresses: Tensor | None
    edge_temps: Tensor | None
    queries: Tensor | None
    keys: Tensor | None

    @classmethod
    def like(cls, inputs: FactorInputs) -> "FactorGrads":
        def empty(x: Tensor | None) -> Tensor | None:
            return None if x is None else torch.empty_like(x)

        return cls(
            empty(inputs.e1_weights),
            empty(inputs.addresses),
            empty(inputs.edge_temps),
            empty(inputs.queries),
            # Keys are shared by the source chunks of a graph, so their gradient is a sum.
            None if inputs.keys is None else torch.zeros_like(inputs.keys),
        )


def below(eps: float, dtype: torch.dtype) -> float:
    """The number under eps: `x > below(eps)` is `x >= eps`, where a clamp passes gradients."""
    return torch.nextafter(torch.tensor(eps, dtype=dtype), torch.tensor(0.0, dtype=dtype)).item()


def edge_factor(
    inputs: FactorInputs, chunk: Chunk, scratch: Scratch, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Edge factors (g, s, h, m); with `keep`, also the mixed addresses and their logits."""
    assert inputs.e1_weights is not None
    assert inputs.addresses is not None
    weights = chunk.take(inputs.e1_weights, 1).flatten(0, 1)  # gs h k
    addresses = chunk.take(inputs.addresses, 1).flatten(0, 1)  # gs k m
    shape = (chunk.num_graphs, chunk.num_sources, weights.shape[1], addresses.shape[2])
    flat = (shape[0] * shape[1], *shape[2:])
    mixed = torch.bmm(weights, addresses, out=scratch("mixed", *flat)).view(shape)
    logits = mixed
    if not inputs.logit_space:
        out = scratch("edge_logits", *shape) if keep else mixed
        logits = torch.clamp_min(mixed, inputs.eps, out=out).log_()
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
    return factors, (mixed if keep else None), (logits if keep else None)


def node_factor(inputs: FactorInputs, chunk: Chunk, scratch: Scratch) -> Tensor:
    """Node factors (g, h, s, m)."""
    assert inputs.queries is not None
    assert inputs.keys is not None
    queries = chunk.take(inputs.queries, 2).flatten(0, 1)  # gh s d
    keys = chunk.take(inputs.keys, None).flatten(0, 1)  # gh m d
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


def log_entry_count(mask: Tensor | None, m: int, like: Tensor) -> Tensor | float:
    """log of the number of allowed targets, the largest entropy a row can have."""
    if mask is None:
        return math.log(m)
    return mask.sum(dim=-1).to(like.dtype).clamp_min(1.0).log()  # (b or 1) (n or 1)


def forward_factors(
    inputs: FactorInputs, chunk: Chunk, scratch: Scratch, entropies: Tensor
) -> Tensor:
    """n2 factors (g, h, s, m) of a chunk; adds to the two `entropies` if they are asked for."""
    ask = inputs.entropy_weights
    rows = None if ask is None else chunk.take(ask, 1)  # g s
    edge = edge_factor(inputs, chunk, scratch, keep=False)[0] if inputs.edge else None
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
    edge_factors: Tensor | None  # g s h m
    edge_logits: Tensor | None
    mixed: Tensor | None
    node_factors: Tensor | None  # g h s m; only where its entropy is asked for


def recompute_factors(inputs: FactorInputs, chunk: Chunk, scratch: Scratch) -> Recomputed:
    edge = logits = mixed = None
    if inputs.edge:
        edge, mixed, logits = edge_factor(inputs, chunk, scratch, keep=True)
    if not inputs.node:
        assert edge is not None
        g, s, h, m = edge.shape
        total = scratch("n2_factors", g, h, s, m).copy_(edge.transpose(1, 2))
        return Recomputed(total, edge, logits, mixed, None)
    node = node_factor(inputs, chunk, scratch)
    if edge is None:
        return Recomputed(node, None, None, None, node)
    if inputs.entropy_weights is None:
        return Recomputed(node.add_(edge.transpose(1, 2)), edge, logits, mixed, None)
    total = torch.add(node, edge.transpose(1, 2), out=scratch("n2_sum", *node.shape))
    return Recomputed(total, edge, logits, mixed, node)


def backward_factors(
    inputs: FactorInputs,
    again: Recomputed,
    grads: FactorGrads,
    n2_grads: Tensor,
    entropy_grads: Tensor | None,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    """Fill `grads` for a chunk from the gradient of its n2 factors; may overwrite `n2_grads`."""
    ask = inputs.entropy_weights
    rows = None if ask is None or entropy_grads is None else chunk.take(ask, 1)  # g s
    if again.edge_factors is not None:
        _edge_backward(inputs, again, grads, n2_grads, entropy_grads, rows, chunk, scratch)
    if inputs.node:
        if rows is not None and entropy_grads is not None:
            assert again.node_factors is not None
            weights = rows.unsqueeze(1) * entropy_grads[1]
            add_entropy_grad(n2_grads, again.node_factors, weights, scratch)
        assert inputs.queries is not None and inputs.keys is not None  # noqa: PT018
        assert grads.queries is not None and grads.keys is not None  # noqa: PT018
        flat = n2_grads.flatten(0, 1)  # gh s m
        keys = chunk.take(inputs.keys, None).flatten(0, 1)
        queries = chunk.take(inputs.queries, 2).flatten(0, 1)
        query_grads = chunk.take(grads.queries, 2)
        query_grads.copy_(torch.bmm(flat, keys).view_as(query_grads))
        key_grads = chunk.take(grads.keys, None)
        key_grads += torch.bmm(flat.transpose(1, 2), queries).view_as(key_grads)


def _edge_backward(
    inputs: FactorInputs,
    again: Recomputed,
    grads: FactorGrads,
    n2_grads: Tensor,
    entropy_grads: Tensor | None,
    rows: Tensor | None,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    factors = again.edge_factors
    assert factors is not None and again.edge_logits is not None  # noqa: PT018
    assert inputs.e1_weights is not None and inputs.addresses is not None  # noqa: PT018
    assert grads.e1_weights is not None and grads.addresses is not None  # noqa: PT018
    delta = scratch("edge_grads", *factors.shape).copy_(n2_grads.transpose(1, 2))
    if rows is not None and entropy_grads is not None:
        weights = rows.unsqueeze(2) * entropy_grads[0]
        add_entropy_grad(delta, factors, weights, scratch)
    if inputs.edge_temps is not None:
        assert grads.edge_temps is not None
        product = torch.mul(delta, again.edge_logits, out=scratch("gaps", *delta.shape))
        chunk.take(grads.edge_temps, 1).copy_(product.sum(dim=-1))
        delta.mul_(chunk.take(inputs.edge_temps, 1).unsqueeze(-1))
    if not inputs.logit_space:
        assert again.mixed is not None
        mixed = again.mixed
        floor = torch.clamp_min(mixed, inputs.eps, out=scratch("gaps", *mixed.shape))
        delta.div_(floor)
        delta = torch.ops.aten.threshold_backward.grad_input(
            delta, mixed, below(inputs.eps, mixed.dtype), grad_input=delta
        )
    flat = delta.flatten(0, 1)  # gs h m
    weights = chunk.take(inputs.e1_weights, 1).flatten(0, 1)
    addresses = chunk.take(inputs.addresses, 1).flatten(0, 1)
    weight_grads = chunk.take(grads.e1_weights, 1)
    weight_grads.copy_(torch.bmm(flat, addresses.transpose(1, 2)).view_as(weight_grads))
    address_grads = chunk.take(grads.addresses, 1).flatten(0, 1)
    torch.bmm(weights.transpose(1, 2), flat, out=address_grads)
