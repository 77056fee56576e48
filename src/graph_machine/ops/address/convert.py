"""Between hard targets, address weights and address logits."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.ops.numerics import ADDRESS_EPS, in_float32, masked_softmax


def one_hot_addresses(
    targets: Int[Tensor, "*b n k"],
    num_nodes: int,
    mask: Bool[Tensor, "#b #n m"] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*b n k m"]:
    """All mass on the target; a target of -1 is an empty edge, uniform over the allowed nodes.

    `mask` (True: may be targeted) keeps empty edges away from padding and from the future.

    >>> one_hot_addresses(torch.tensor([[1, -1], [0, -1]]), num_nodes=2)  # n k -> n k m
    tensor([[[0.0000, 1.0000],
             [0.5000, 0.5000]],
    <BLANKLINE>
            [[1.0000, 0.0000],
             [0.5000, 0.5000]]])
    """
    ids = torch.arange(num_nodes, device=targets.device)
    hard = (targets.unsqueeze(-1) == ids).to(dtype)  # *b n k m; all 0 for an empty slot
    if mask is None:
        uniform = hard.new_full((), 1.0 / num_nodes)
    else:
        allowed = mask.unsqueeze(-2).to(dtype)  # b n 1 m
        uniform = allowed / allowed.sum(dim=-1, keepdim=True).clamp_min(1.0)
    empty = (targets < 0).unsqueeze(-1)
    return torch.where(empty, uniform, hard)


def to_logits(weights: Float[Tensor, "*s m"], eps: float = ADDRESS_EPS) -> Float[Tensor, "*s m"]:
    """log(max(weights, eps)): no logit is infinite, and clipped entries pass no gradient.

    >>> to_logits(torch.tensor([1.0, 0.0]), eps=1e-3)
    tensor([ 0.0000, -6.9078])
    """
    return in_float32(weights).clamp_min(eps).log()


def to_weights(
    logits: Float[Tensor, "*s m"], mask: Bool[Tensor, "*any m"] | None = None
) -> Float[Tensor, "*s m"]:
    """The distribution that address logits stand for.

    >>> to_weights(torch.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    return masked_softmax(in_float32(logits), mask)
