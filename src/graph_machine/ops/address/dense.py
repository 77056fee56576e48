"""Dense addresses: conversions, sharpening, top-s selection, entropies."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32, masked_softmax
from graph_machine.ops.rows import sharpen_rows


def one_hot_addresses(
    targets: Int[Tensor, "*b n k"],
    num_nodes: int,
    mask: Bool[Tensor, "#b #n m"] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*b n k m"]:
    """All mass on the target; a target of -1 is an empty edge, uniform over the allowed nodes.

    `mask` (True: may be targeted) keeps empty edges off padding and off the future.

    >>> one_hot_addresses(torch.tensor([[1, -1], [0, -1]]), num_nodes=2)  # n k -> n k m
    tensor([[[0.0000, 1.0000],
             [0.5000, 0.5000]],
    <BLANKLINE>
            [[1.0000, 0.0000],
             [0.5000, 0.5000]]])
    """
    # One input graph for all examples is made once. `len` would fix the batch of an exported model.
    if (
        not torch.compiler.is_compiling()
        and targets.ndim == 3
        and len(targets) > 1
        and targets.stride(0) == 0
        and (mask is None or len(mask) == 1)
    ):
        return one_hot_addresses(targets[:1], num_nodes, mask, dtype).expand(
            len(targets), -1, -1, -1
        )
    empty = (targets < 0).unsqueeze(-1)
    if mask is None:
        uniform = torch.full((num_nodes,), 1.0 / num_nodes, dtype=dtype, device=targets.device)
    else:
        allowed = mask.unsqueeze(-2).to(dtype)  # b n 1 m
        uniform = allowed / allowed.sum(dim=-1, keepdim=True).clamp_min(1.0)
    rows = empty.to(dtype) * uniform  # *b n k m: written once, as it is large
    hit = torch.where(empty, rows[..., :1], 1.0)
    return rows.scatter_(-1, targets.clamp_min(0).unsqueeze(-1), hit)


def to_logits(weights: Float[Tensor, "*s m"], eps: float = ADDRESS_EPS) -> Float[Tensor, "*s m"]:
    """log(max(weights, eps)): no logit is infinite, and clipped entries get no gradient.

    >>> to_logits(torch.tensor([1.0, 0.0]), eps=1e-3)
    tensor([ 0.0000, -6.9078])
    """
    return in_float32(weights).clamp_min(eps).log()


def to_weights(
    logits: Float[Tensor, "*s m"], mask: Bool[Tensor, "*any m"] | None = None
) -> Float[Tensor, "*s m"]:
    """The distribution of address logits.

    >>> to_weights(torch.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    return masked_softmax(in_float32(logits), mask)


def sharpen(
    addresses: Float[Tensor, "b n k m"],
    temps: Float[Tensor, "b n k"],
    *,
    mask: Bool[Tensor, "#b #n m"] | None = None,
    eps: float = ADDRESS_EPS,
    backend: Backend = "auto",
) -> Float[Tensor, "b n k m"]:
    """Scale each address in log space by its own temperature, then renormalise (paper, 2.4).

    A temperature of 1 keeps the address, above 1 concentrates it, 0 makes it uniform. Mass below
    `eps` is first raised to `eps`, so no logit is infinite; `mask` (True: may be targeted) keeps
    this mass off padding and off the future.

    >>> import torch
    >>> address = torch.tensor([[[[0.6, 0.3, 0.1]]]])  # b n k m
    >>> sharpen(address, torch.tensor([[[2.0]]]))
    tensor([[[[0.7826, 0.1957, 0.0217]]]])
    """
    if temps.shape != addresses.shape[:-1]:
        raise ShapeError(
            f"sharpen: temps should be (b, n, k) = {tuple(addresses.shape[:-1])}, "
            f"got {tuple(temps.shape)}."
        )
    if resolve(backend, "sharpen") == "fused":
        found = sharpen_rows(in_float32(addresses), in_float32(temps), mask, eps)
        if found is not None:
            return found
    logits = temps.unsqueeze(-1) * to_logits(addresses, eps)  # b n k m
    return masked_softmax(logits, None if mask is None else mask.unsqueeze(-2))


def gumbel_like(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Standard Gumbel noise: -log of an exponential variable, which is never 0 in practice."""
    noise = torch.empty_like(x).exponential_()
    return -noise.clamp_min(torch.finfo(x.dtype).tiny).log()


# Logits that differ by less count as equal in a choice: well above the noise of summing in another
# order, far below what matters.
EQUAL_DIGITS = {torch.float32: 5, torch.float64: 10}


@torch.no_grad()
def best_indices(logits: Float[Tensor, "*rows m"], limit: int) -> Int[Tensor, "*rows limit"]:
    """Indices of the `limit` largest logits of each row, ascending; the first of equal ones.

    `topk` may choose any of equal ones, depending on the width, so a graph's answer would depend on
    the padding of its batch. Entries of -inf may be chosen in any order.

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
    """The first of the equal entries, as many as were chosen."""
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


def _log_count(x: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return x.new_tensor(float(x.shape[-1])).log()
    return mask.sum(dim=-1).to(x.dtype).clamp_min(1.0).log()


def normalised_entropy(
    weights: Float[Tensor, "*rows m"], mask: Bool[Tensor, "*any m"] | None = None
) -> Float[Tensor, "*rows"]:
    """Entropy of each distribution, divided by its maximum: log of the number of allowed entries.

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
