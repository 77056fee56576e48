"""Top-s and Gumbel-top-s selection, simulated on dense addresses (paper, appendix C.6)."""

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.address.convert import to_logits
from graph_machine.ops.numerics import ADDRESS_EPS


def gumbel_like(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Standard Gumbel noise: -log of an exponential variable, which is never 0 in practice."""
    noise = torch.empty_like(x).exponential_()
    return -noise.clamp_min(torch.finfo(x.dtype).tiny).log()


def keep_top_s(
    weights: Float[Tensor, "*rows m"], s: int, tau: float = 0.0, eps: float = ADDRESS_EPS
) -> Float[Tensor, "*rows m"]:
    """Keep the s largest entries of each address and renormalise them.

    With `tau` > 0, Gumbel noise of that scale is added to the log weights only for the *choice*;
    the kept weights are the original ones. s >= m keeps everything.

    >>> keep_top_s(torch.tensor([0.5, 0.3, 0.1, 0.1]), s=2)
    tensor([0.6250, 0.3750, 0.0000, 0.0000])
    """
    if s < 1:
        raise ConfigError(f"keep_top_s: s should be at least 1, got {s}.")
    if s >= weights.shape[-1]:
        return weights
    with torch.no_grad():
        keys = weights.detach()
        if tau > 0:
            keys = to_logits(keys, eps)
            keys = keys + tau * gumbel_like(keys)
        kept = torch.zeros_like(weights)
        kept.scatter_(-1, keys.topk(s, dim=-1).indices, 1.0)
    chosen = weights * kept
    # Noise may choose only entries without mass; the floor keeps that row at 0 and finite.
    return chosen / chosen.sum(dim=-1, keepdim=True).clamp_min(eps)
