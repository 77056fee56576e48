"""Forward kernels: attention over n2, or over all (n2, e2) pairs, with an online softmax.

Shapes and their letters are those of `launch.py`. A program serves one head of one graph and
BLOCK_N of its sources. Everything is loaded as it is stored and computed in float32.
`no_type_check` keeps the shape checker of the tests off functions that Triton reads as source.
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
    """Every source's mixture of its own K addresses: they differ by row, so not a product."""
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


@triton.jit
@no_type_check
def attend_kernel(
    e1_weights, e1_addresses, edge_temps, n1_queries, n2_keys, e2_queries, e2_keys, n2_values,
    e2_values, mask, n2_factors, features, e2, stats,
    eps, H, N, M, mask_b, mask_n,
    EDGE: tl.constexpr, NODE: tl.constexpr, E2: tl.constexpr, E2_VALUES: tl.constexpr,
    TEMPS: tl.constexpr, MASK: tl.constexpr, LOGIT_SPACE: tl.constexpr,
    ENTROPIES: tl.constexpr, ADDRESSES: tl.constexpr, SHARED: tl.constexpr,
    K: tl.constexpr, L: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    D_PAD: tl.constexpr, E_PAD: tl.constexpr, V_PAD: tl.constexpr, C_PAD: tl.constexpr,
    STATS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Outputs of values and e2 values, and what backward needs of every row."""
    pair = tl.program_id(1).to(tl.int64)  # graph and head
    b, h = pair // H, pair % H
    source = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    has_source = source < N
    row, there, kept = b * N * H + h, b * M * H + h, pair * N
    chains = (b if SHARED else pair) * M * L
    d, e = tl.arange(0, D_PAD), tl.arange(0, E_PAD)
    v, c = tl.arange(0, V_PAD), tl.arange(0, C_PAD)
    if NODE:
        query = tile(n1_queries + row * D, source, d, has_source, d < D, H * D)
    if E2:
        e2_query = tile(e2_queries + row * E, source, e, has_source, e < E, H * E)
    if TEMPS:
        temps = tl.load(edge_temps + row + source * H, mask=has_source, other=0.0).to(tl.float32)
    top, total = tl.full([BLOCK_N], LOW, tl.float32), tl.zeros([BLOCK_N], tl.float32)
    out = tl.zeros([BLOCK_N, V_PAD], tl.float32)
    e2_out = tl.zeros([BLOCK_N, C_PAD], tl.float32)
    edge_top, edge_total, edge_gaps = top, total, total
    node_top, node_total, node_gaps = top, total, total
    for start in range(0, M, BLOCK_M):
        target = start + tl.arange(0, BLOCK_M)
        has_target = target < M
        allowed = visible(
            mask + b * mask_b if MASK else mask,
            source, target, has_source, has_target, mask_n, MASK,
        )  # fmt: skip
        n2 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        if EDGE:
            n2 = mixed_addresses(
                e1_weights + row * K, e1_addresses + b * N * K * M,
                source, target, has_source, has_target, H, M, K,
            )  # fmt: skip
            if not LOGIT_SPACE:
                n2 = tl.log(tl.maximum(n2, eps))
            if TEMPS:
                n2 *= temps[:, None]
            if ENTROPIES:
                edge_top, edge_total, edge_gaps = entropy_step(
                    n2, allowed, edge_top, edge_total, edge_gaps
                )
        if NODE:
            key = turned(n2_keys + there * D, target, d, has_target, d < D, H * D)
            factor = tl.dot(query, key, input_precision=PRECISION)
            if ENTROPIES:
                node_top, node_total, node_gaps = entropy_step(
                    factor, allowed, node_top, node_total, node_gaps
                )
            n2 += factor
        n2 = tl.where(allowed, n2, LOW)
        if ADDRESSES:
            put(n2_factors + kept * M, source, target, has_source, has_target, M, n2)
        value = tile(n2_values + there * V, target, v, has_target, v < V, H * V)
        for l in range(L):
            logits = n2
            if E2:
                here = e2_keys + (chains + l) * E
                e2_key = turned(here, target, e, has_target, e < E, L * E)
                logits += tl.dot(e2_query, e2_key, input_precision=PRECISION)
            new = tl.maximum(top, tl.max(logits, axis=1))
            scale = tl.exp(top - new)
            weights = tl.where(allowed, tl.exp(logits - new[:, None]), 0.0)
            total = scale * total + tl.sum(weights, axis=1)
            top = new
            out = out * scale[:, None] + tl.dot(weights, value, input_precision=PRECISION)
            if E2_VALUES:
                here = e2_values + (chains + l) * C
                e2_value = tile(here, target, c, has_target, c < C, L * C)
                found = tl.dot(weights, e2_value, input_precision=PRECISION)
                e2_out = e2_out * scale[:, None] + found
    share = tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)
    put(features + row * V, source, v, has_source, v < V, H * V, out * share[:, None])
    if E2_VALUES:
        put(e2 + row * C, source, c, has_source, c < C, H * C, e2_out * share[:, None])
    stat = stats + kept * STATS + source * STATS
    tl.store(stat, log_sum(top, total), mask=has_source)
    if ENTROPIES and EDGE:
        found = tl.where(edge_total > 0, edge_total, 1.0)
        tl.store(stat + 1, log_sum(edge_top, edge_total), mask=has_source)
        tl.store(stat + 2, tl.log(found) - edge_gaps / found, mask=has_source)
    if ENTROPIES and NODE:
        found = tl.where(node_total > 0, node_total, 1.0)
        tl.store(stat + 3, log_sum(node_top, node_total), mask=has_source)
        tl.store(stat + 4, tl.log(found) - node_gaps / found, mask=has_source)


@triton.jit
@no_type_check
def collect_addresses_kernel(
    n2_factors, e2_queries, e2_keys, e2_addresses, stats, addresses,
    H, N, M, A,
    E2: tl.constexpr, SHARED: tl.constexpr, OWN: tl.constexpr,
    L: tl.constexpr, E: tl.constexpr, E_PAD: tl.constexpr, STATS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """New addresses: weights, known from their log-sum-exp, times the addresses of all pairs."""
    pair = tl.program_id(2).to(tl.int64)
    b, h = pair // H, pair % H
    source = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    a = tl.program_id(1) * BLOCK_A + tl.arange(0, BLOCK_A)
    has_source, has_a = source < N, a < A
    row, kept = b * N * H + h, pair * N
    chains = (b if SHARED else pair) * M * L
    slots = H if OWN else L
    e = tl.arange(0, E_PAD)
    if E2:
        e2_query = tile(e2_queries + row * E, source, e, has_source, e < E, H * E)
    log_sums = tl.load(stats + kept * STATS + source * STATS, mask=has_source, other=-LOW)
    found = tl.zeros([BLOCK_N, BLOCK_A], tl.float32)
    for start in range(0, M, BLOCK_M):
        target = start + tl.arange(0, BLOCK_M)
        has_target = target < M
        inside = has_source[:, None] & has_target[None, :]
        where = source[:, None] * M + target[None, :]
        n2 = tl.load(n2_factors + kept * M + where, mask=inside, other=LOW)
        for l in range(L):
            logits = n2
            if E2:
                here = e2_keys + (chains + l) * E
                e2_key = turned(here, target, e, has_target, e < E, L * E)
                logits += tl.dot(e2_query, e2_key, input_precision=PRECISION)
            weights = tl.exp(logits - log_sums[:, None])
            here = e2_addresses + (b * M * slots + (h if OWN else l)) * A
            address = tile(here, target, a, has_target, has_a, slots * A)
            found += tl.dot(weights, address, input_precision=PRECISION)
    put(addresses + row * A, source, a, has_source, has_a, H * A, found)
