"""Pieces that the kernels share: tiles of matrices, mixed addresses, online softmax.

Everything is loaded as it is stored and computed in float32. `no_type_check` keeps the shape
checker of the tests off functions that Triton reads as source.
"""

from typing import no_type_check

import triton
import triton.language as tl

# Stands for minus infinity: its exponential is 0, and sums of it stay finite.
LOW = tl.constexpr(-1e30)


@triton.jit
@no_type_check
def tile(base, rows, columns, has_row, has_column, stride):
    """(rows, columns) of a matrix whose rows lie `stride` apart; 0 outside.

    Bases are 64-bit, offsets within a graph 32-bit: these live in registers, one per number.
    """
    where = rows[:, None] * stride + columns[None, :]
    inside = has_row[:, None] & has_column[None, :]
    return tl.load(base + where, mask=inside, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def turned(base, rows, columns, has_row, has_column, stride):
    """The same tile transposed, (columns, rows)."""
    where = rows[None, :] * stride + columns[:, None]
    inside = has_row[None, :] & has_column[:, None]
    return tl.load(base + where, mask=inside, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def put(base, rows, columns, has_row, has_column, stride, values):
    where = rows[:, None] * stride + columns[None, :]
    tl.store(base + where, values, mask=has_row[:, None] & has_column[None, :])


@triton.jit
@no_type_check
def mixed_addresses(
    weights, addresses, source, target, has_source, has_target, H, M, K: tl.constexpr
):
    """Every source's mixture of its own K addresses: they differ by row, so it is no product."""
    mixed = tl.zeros([source.shape[0], target.shape[0]], tl.float32)
    for k in tl.static_range(K):
        weight = tl.load(weights + k + source * (H * K), mask=has_source, other=0.0)
        address = tile(addresses + k * M, source, target, has_source, has_target, K * M)
        mixed += weight.to(tl.float32)[:, None] * address
    return mixed


@triton.jit
@no_type_check
def visible(mask, source, target, has_source, has_target, mask_n, MASK: tl.constexpr):
    """Where a source may look; `mask_n` is the stride of sources, 0 if there is one row for all."""
    allowed = has_source[:, None] & has_target[None, :]
    if MASK:
        where = source[:, None] * mask_n + target[None, :]
        allowed &= tl.load(mask + where, mask=allowed, other=0) != 0
    return allowed


@triton.jit
@no_type_check
def entropy_step(factors, allowed, top, total, gaps):
    """Adds a tile to a softmax in passing: its maximum, sum, and sum of p * (factor - maximum)."""
    new = tl.maximum(top, tl.max(tl.where(allowed, factors, LOW), axis=1))
    scale = tl.exp(top - new)
    gap = tl.where(allowed, factors - new[:, None], 0.0)
    weights = tl.where(allowed, tl.exp(gap), 0.0)
    gaps = scale * (gaps + total * (top - new)) + tl.sum(weights * gap, axis=1)
    total = scale * total + tl.sum(weights, axis=1)
    return new, total, gaps


@triton.jit
@no_type_check
def log_sum(top, total):
    """Log-sum-exp of a row; so large for a row that may look nowhere that its weights are 0."""
    return tl.where(total > 0, top + tl.log(tl.where(total > 0, total, 1.0)), -LOW)


@triton.jit
@no_type_check
def entropy_slope(factors, allowed, row_grads, log_sums, entropies):
    """Gradient of the rows' entropies in the factors: -p (log p + H)."""
    logs = factors - log_sums[:, None]
    weights = tl.where(allowed, tl.exp(tl.where(allowed, logs, LOW)), 0.0)
    slope = tl.where(allowed, logs, 0.0) + entropies[:, None]
    return -row_grads[:, None] * weights * slope
