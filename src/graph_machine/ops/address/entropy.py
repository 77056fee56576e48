"""Normalised entropies: 0 for a hard choice, 1 for a uniform one."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.numerics import in_float32


def _log_count(x: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return x.new_tensor(float(x.shape[-1])).log()
    return mask.sum(dim=-1).to(x.dtype).clamp_min(1.0).log()


def normalised_entropy(
    weights: Float[Tensor, "*rows m"], mask: Bool[Tensor, "*any m"] | None = None
) -> Float[Tensor, "*rows"]:
    """Entropy of each distribution over its maximum, log of the number of allowed entries.

    A distribution over a single entry has entropy 0.

    >>> normalised_entropy(torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]]))
    tensor([1.0000, 0.5000])
    """
    weights = in_float32(weights)
    # Not xlogy: its gradient at a weight of 0 is NaN. The floor makes it large and finite.
    logs = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    entropy = -(weights * logs).sum(dim=-1)
    top = _log_count(weights, mask)
    return torch.where(top > 0, entropy / top.clamp_min(1e-12), torch.zeros_like(entropy))


def factor_entropy(
    factors: Float[Tensor, "b h n m"],
    mask: Bool[Tensor, "#b #n m"] | None = None,
    sources: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, ""]:
    """Mean normalised entropy of softmax(factor) over batch, heads and source nodes.

    The paper's entropy losses minimise it for the edge and node factors after their temperatures
    (section 3.3). `sources` leaves padded source nodes out of the mean.

    >>> factor_entropy(torch.zeros(2, 8, 81, 81))  # b h n m: uniform
    tensor(1.)
    """
    logits = in_float32(factors)
    pairs = None if mask is None else mask.unsqueeze(-3)  # b 1 n m
    if pairs is not None:
        logits = logits.masked_fill(~pairs, torch.finfo(logits.dtype).min)
    log_weights = logits.log_softmax(dim=-1)
    weights = log_weights.exp()
    entropy = -(weights * log_weights.clamp_min(-1e4)).sum(dim=-1)  # b h n
    top = _log_count(logits, pairs)
    entropy = torch.where(top > 0, entropy / top.clamp_min(1e-12), torch.zeros_like(entropy))
    if sources is None:
        return entropy.mean()
    real = sources.unsqueeze(-2).expand_as(entropy)
    return (entropy * real).sum() / real.sum().clamp_min(1)
