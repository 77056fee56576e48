"""Addresses as mixed by weights over a node's edges: its slots, given edges and the empty edge.

Slots have rows of addresses. A given edge is an index: its weight is added to one target, and its
gradient is read there. Weights come in this order: slots, given edges, the empty edge.
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graph_machine.ops.core import KernelInputs
from graph_machine.ops.numerics import in_float32


def even_rows(
    mask: Shaped[Tensor, "#b #n m"] | None, num_nodes: int, scale: float, like: Tensor
) -> Float[Tensor, "#b #n 1 m"]:
    """The addresses of empty edges: `scale`, shared evenly by all nodes that may be seen."""
    if mask is None:
        return like.new_full((1, 1, 1, num_nodes), 1.0 / num_nodes) * scale
    seen = mask.unsqueeze(2).to(like.dtype)
    return seen / seen.sum(dim=-1, keepdim=True).clamp_min(1.0) * scale


def beside(
    x: KernelInputs,
) -> tuple[Int[Tensor, "b n g"] | None, float, Float[Tensor, "#b #n 1 m"] | None]:
    """The edges without rows: given ones, their mass, and addresses of the empty ones."""
    if not x.empty:
        return x.given, x.given_scale, None
    like = in_float32(x.n2_values[:0])
    return x.given, x.given_scale, even_rows(x.mask, x.sizes[3], x.given_scale, like)


def mixture(
    weights: Float[Tensor, "b n h t"],
    addresses: Float[Tensor, "b n k m"],
    given: Int[Tensor, "b n g"] | None,
    scale: float,
    even: Float[Tensor, "#b #n 1 m"] | None,
) -> Float[Tensor, "b n h m"]:
    """`scale` is the mass of a given edge; without an empty edge, `even` is None."""
    weights, made = in_float32(weights), addresses.shape[2]
    mixed = torch.matmul(weights[..., :made], in_float32(addresses))
    if given is not None:
        at, there = _targets(given, weights.shape[2])
        found = weights[..., made : made + given.shape[-1]] * (there * scale)
        mixed = mixed.scatter_add(3, at, found)
    return mixed if even is None else mixed + weights[..., -1:] * even


def mixture_grads(
    weights: Float[Tensor, "b n h t"],
    addresses: Float[Tensor, "b n k m"],
    given: Int[Tensor, "b n g"] | None,
    scale: float,
    even: Float[Tensor, "#b #n 1 m"] | None,
    above: Float[Tensor, "b n h m"],
) -> tuple[Float[Tensor, "b n h t"], Float[Tensor, "b n k m"]]:
    """Gradients of weights and addresses from that of their mixture."""
    found = [torch.matmul(above, addresses.to(above.dtype).mT)]
    if given is not None:
        at, there = _targets(given, weights.shape[2])
        found.append(above.gather(3, at) * (there * scale))
    if even is not None:
        found.append((above * even).sum(dim=-1, keepdim=True))
    made = weights[..., : addresses.shape[2]].to(above.dtype)
    return torch.cat(found, dim=-1), torch.matmul(made.mT, above)


def _targets(given: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Where given edges point, (b, n, h, g), and which there are, (b, n, 1, g)."""
    at = given.clamp_min(0).long().unsqueeze(2)
    return at.expand(-1, -1, heads, -1), (given >= 0).unsqueeze(2)
