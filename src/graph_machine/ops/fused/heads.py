"""Small steps around the fused ops: absorbed projections, temperatures, entropy weights."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.fused.factors import log_entry_count
from graph_machine.ops.fused.native.calls import rows
from graph_machine.ops.numerics import in_float32


def block_diagonal(weights: Float[Tensor, "h d e"]) -> Float[Tensor, "hd he"]:
    """One matrix that applies every head's own projection: a single product instead of h."""
    h, d, e = weights.shape
    eye = torch.eye(h, dtype=weights.dtype, device=weights.device)
    return (weights.unsqueeze(2) * eye[:, None, :, None]).reshape(h * d, h * e)


def node_major(heads: Float[Tensor, "b h n d"]) -> Float[Tensor, "b n hd"]:
    """Heads side by side, as projections produce them."""
    return in_float32(heads).transpose(1, 2).flatten(-2)


def scaled(
    queries: Float[Tensor, "b h n d"], temps: Float[Tensor, "b h n"] | None, scale: float
) -> Float[Tensor, "b h n d"]:
    """Queries that hold a factor's temperature and 1/sqrt(d)."""
    queries = in_float32(queries)
    factor = scale if temps is None else (in_float32(temps) * scale).unsqueeze(-1)
    return rows(queries * factor)


def node_major_temps(temps: Float[Tensor, "b h n"] | None) -> Float[Tensor, "b n h"] | None:
    return None if temps is None else in_float32(temps).transpose(1, 2)


def entropy_weights(
    sizes: tuple[int, int, int, int],
    mask: Bool[Tensor, "#b #n m"] | None,
    sources: Bool[Tensor, "b n"] | None,
    like: Tensor,
) -> Float[Tensor, "#b #n"]:
    """How much the entropy of each source node counts in the mean of normalised entropies.

    `sizes` is (b, h, n, m). A row with a single allowed target has entropy 0 and counts as that.
    """
    b, h, n, m = sizes
    top = log_entry_count(mask, m, like)
    top = like.new_full((1, 1), top) if isinstance(top, float) else top
    weights = torch.where(top > 0, 1.0 / top.clamp_min(1e-12), torch.zeros_like(top))
    if sources is None:
        return weights / (b * h * n)
    return weights * sources / (sources.sum() * h).clamp_min(1)
