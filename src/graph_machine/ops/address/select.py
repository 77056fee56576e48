"""Top-s and Gumbel-top-s selection, simulated on dense addresses (paper, appendix C.6)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.address.convert import to_logits
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32


def gumbel_like(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Standard Gumbel noise: -log of an exponential variable, which is never 0 in practice."""
    noise = torch.empty_like(x).exponential_()
    return -noise.clamp_min(torch.finfo(x.dtype).tiny).log()


# Logits that differ by less count as equal in a choice: well above the noise of summing in another
# order, far below what matters.
EQUAL_DIGITS = {torch.float32: 5, torch.float64: 10}


@torch.no_grad()
def best_indices(logits: Float[Tensor, "*rows m"], limit: int) -> Int[Tensor, "*rows limit"]:
    """Places of the `limit` largest logits of each row, ascending; of equal ones the first.

    `topk` takes any of the equal ones, and which it takes depends on the width: a graph's answer
    would depend on the padding of its batch. Entries of -inf are no choice, whichever is taken.

    >>> best_indices(torch.tensor([0.0, 3.0, 1.0, 1.0, 1.0]), limit=3)
    tensor([1, 2, 3])
    """
    keys = in_float32(logits)
    keys = keys.round(decimals=EQUAL_DIGITS[keys.dtype])
    values, found = keys.topk(limit, dim=-1, sorted=False)
    last = values.amin(dim=-1, keepdim=True)
    equal, taken = keys == last, values == last
    if keys.device.type != "cpu" or torch.compiler.is_compiling():
        found = _first_equal(equal, taken, found)  # in all rows: no synchronisation, no branch
    else:
        # Rows in which some of the equal ones were taken and some were not: few as a rule.
        split = (equal.sum(dim=-1) != taken.sum(dim=-1)) & (last > -torch.inf).squeeze(-1)
        if bool(split.any()):
            found[split] = _first_equal(equal[split], taken[split], found[split])
    return found.sort(dim=-1).values


def _first_equal(
    equal: Bool[Tensor, "*rows m"], taken: Bool[Tensor, "*rows r"], found: Int[Tensor, "*rows r"]
) -> Int[Tensor, "*rows r"]:
    """As many of the equal entries as were taken, the first ones."""
    ranks = equal.cumsum(dim=-1, dtype=torch.int32)
    first = torch.searchsorted(ranks, taken.cumsum(dim=-1, dtype=torch.int32))
    return torch.where(taken, first, found)


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
        keys = to_logits(weights.detach(), eps)
        if tau > 0:
            keys = keys + tau * gumbel_like(keys)
        kept = torch.zeros_like(weights)
        kept.scatter_(-1, best_indices(keys, s), 1.0)
    chosen = weights * kept
    # Noise may choose only entries without mass; the floor keeps that row at 0 and finite.
    return chosen / chosen.sum(dim=-1, keepdim=True).clamp_min(eps)
