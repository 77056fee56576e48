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
    weights, addresses, given, shares, source, target, has_source, has_target, allowed,
    given_scale, H, M, G, K: tl.constexpr, GIVEN: tl.constexpr, EMPTY: tl.constexpr,
):  # fmt: skip
    """Every source's mixture of its own K addresses: they differ by row, so not a product.

    A given edge adds its weight to one target, the empty edge to all that may be seen.
    """
    mixed = tl.zeros([source.shape[0], target.shape[0]], tl.float32)
    row = weights + source * (H * (K + G + EMPTY))
    for k in tl.static_range(K):
        weight = tl.load(row + k, mask=has_source, other=0.0).to(tl.float32)
        address = tile(addresses + k * M, source, target, has_source, has_target, K * M)
        mixed += weight[:, None] * address
    if GIVEN:
        for g in range(G):
            weight = given_scale * tl.load(row + K + g, mask=has_source, other=0.0).to(tl.float32)
            at = tl.load(given + source * G + g, mask=has_source, other=-1)
            mixed += tl.where(at[:, None] == target[None, :], weight[:, None], 0.0)
    if EMPTY:
        weight = tl.load(row + K + G, mask=has_source, other=0.0).to(tl.float32)
        weight *= tl.load(shares + source, mask=has_source, other=0.0)
        mixed += tl.where(allowed, weight[:, None], 0.0)
    return mixed


@triton.jit
@no_type_check
def e2_factors(
    queries, keys, given, target, has_target, e, l, L, MADE, G, E: tl.constexpr,
    GIVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Of slot l of all targets, (sources, targets); LOW for a slot that holds no edge."""
    key = turned(keys + l * E, target, e, has_target, e < E, L * E)
    factors = tl.dot(queries, key, input_precision=PRECISION)
    if GIVEN:
        is_given = (l >= MADE) & (l < MADE + G)
        at = tl.load(given + target * G + (l - MADE), mask=has_target & is_given, other=0)
        factors = tl.where(at[None, :] >= 0, factors, LOW)
    return factors


@triton.jit
@no_type_check
def slot_log_sums(
    queries, keys, given, source, target, has_target, e, L, MADE, G, E: tl.constexpr,
    GIVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Log-sum-exp of e2 factors over slots: less these, pairs have conditional weights."""
    top = tl.full([source.shape[0], target.shape[0]], LOW, tl.float32)
    total = tl.zeros([source.shape[0], target.shape[0]], tl.float32)
    for l in range(L):
        factors = e2_factors(
            queries, keys, given, target, has_target, e, l, L, MADE, G, E, GIVEN, PRECISION
        )
        new = tl.maximum(top, factors)
        total = total * tl.exp(top - new) + tl.exp(factors - new)
        top = new
    return top + tl.log(total)


@triton.jit
@no_type_check
def slot_addresses(
    addresses, given, mask, shares, target, a, given_scale, slot,
    M, A, G, MADE, mask_n, GIVEN: tl.constexpr, EMPTY: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Of one slot of all targets: a stored row, one node, or all nodes that may be seen.

    (targets, a) if `target` is a column and `a` a row; the same transposed if `target` is the row.
    """
    has_target = target < M
    inside = has_target & (a < A)
    where = target * (MADE * A) + a
    found = tl.load(addresses + slot * A + where, mask=inside & (slot < MADE), other=0.0)
    found = found.to(tl.float32)
    if GIVEN:
        is_given = (slot >= MADE) & (slot < MADE + G)
        at = tl.load(given + target * G + (slot - MADE), mask=has_target & is_given, other=-1)
        found += tl.where(at == a, given_scale, 0.0)
    if EMPTY:
        share = tl.load(shares + target, mask=has_target & (slot == MADE + G), other=0.0)
        seen = inside
        if MASK:
            seen &= tl.load(mask + target * mask_n + a, mask=inside, other=0) != 0
        found += tl.where(seen, share, 0.0)
    return found


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
    e2_values, mask, given, shares, n2_factors, features, e2, stats,
    eps, given_scale, H, N, M, G, L, MADE, mask_b, mask_n,
    EDGE: tl.constexpr, NODE: tl.constexpr, E2: tl.constexpr, E2_VALUES: tl.constexpr,
    TEMPS: tl.constexpr, MASK: tl.constexpr, LOGIT_SPACE: tl.constexpr,
    ENTROPIES: tl.constexpr, ADDRESSES: tl.constexpr, SHARED: tl.constexpr,
    GIVEN: tl.constexpr, EMPTY: tl.constexpr, GIVEN_E2: tl.constexpr, CONDITIONAL: tl.constexpr,
    K: tl.constexpr,
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
    there_given = given + b * M * G if GIVEN_E2 else given
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
                e1_weights + row * (K + G + EMPTY), e1_addresses + b * N * K * M,
                given + b * N * G if GIVEN else given, shares + b * N if EMPTY else shares,
                source, target, has_source, has_target, allowed,
                given_scale, H, M, G, K, GIVEN, EMPTY,
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
        if CONDITIONAL:
            n2 -= slot_log_sums(
                e2_query, e2_keys + chains * E, there_given, source, target, has_target,
                e, L, MADE, G, E, GIVEN_E2, PRECISION,
            )  # fmt: skip
        n2 = tl.where(allowed, n2, LOW)
        if ADDRESSES:
            put(n2_factors + kept * M, source, target, has_source, has_target, M, n2)
        value = tile(n2_values + there * V, target, v, has_target, v < V, H * V)
        for l in range(L):
            logits = n2
            if E2:
                logits += e2_factors(
                    e2_query, e2_keys + chains * E, there_given, target, has_target,
                    e, l, L, MADE, G, E, GIVEN_E2, PRECISION,
                )  # fmt: skip
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
    n2_factors, e2_queries, e2_keys, e2_addresses, mask, given, shares, stats, addresses,
    given_scale, H, N, M, A, G, L, MADE, mask_b, mask_n,
    E2: tl.constexpr, SHARED: tl.constexpr, OWN: tl.constexpr, MASK: tl.constexpr,
    GIVEN_E2: tl.constexpr, EMPTY_E2: tl.constexpr,
    E: tl.constexpr, E_PAD: tl.constexpr, STATS: tl.constexpr,
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
    there_given = given + b * M * G if GIVEN_E2 else given
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
                logits += e2_factors(
                    e2_query, e2_keys + chains * E, there_given, target, has_target,
                    e, l, L, MADE, G, E, GIVEN_E2, PRECISION,
                )  # fmt: skip
            weights = tl.exp(logits - log_sums[:, None])
            address = slot_addresses(
                e2_addresses + b * M * MADE * A, there_given, mask + b * mask_b if MASK else mask,
                shares + b * M if EMPTY_E2 else shares, target[:, None], a[None, :],
                given_scale, h if OWN else l, M, A, G, MADE, mask_n, GIVEN_E2, EMPTY_E2, MASK,
            )  # fmt: skip
            found += tl.dot(weights, address, input_precision=PRECISION)
    put(addresses + row * A, source, a, has_source, has_a, H * A, found)
