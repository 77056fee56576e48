"""Forward kernels: attention over n2, or over all (n2, e2) pairs, with an online softmax.

Shapes and their letters are those of `launch.py`. A program serves one head of one graph and
BLOCK_N of its sources.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graph_machine.ops.triton.tiles import (
    LOW,
    entropy_step,
    log_sum,
    mixed_addresses,
    put,
    tile,
    turned,
    visible,
)


@triton.jit
@no_type_check
def attend_kernel(
    e1_weights, addresses, edge_temps, queries, keys, e2_queries, e2_keys, values, e2_values, mask,
    n2_factors, outs, e2_outs, stats,
    eps, H, N, M, mask_b, mask_n,
    EDGE: tl.constexpr, NODE: tl.constexpr, E2: tl.constexpr, E2_VALUES: tl.constexpr,
    TEMPS: tl.constexpr, MASK: tl.constexpr, LOGIT_SPACE: tl.constexpr,
    ENTROPIES: tl.constexpr, KEEP: tl.constexpr, SHARED: tl.constexpr,
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
        query = tile(queries + row * D, source, d, has_source, d < D, H * D)
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
                e1_weights + row * K, addresses + b * N * K * M,
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
            key = turned(keys + there * D, target, d, has_target, d < D, H * D)
            factor = tl.dot(query, key, input_precision=PRECISION)
            if ENTROPIES:
                node_top, node_total, node_gaps = entropy_step(
                    factor, allowed, node_top, node_total, node_gaps
                )
            n2 += factor
        n2 = tl.where(allowed, n2, LOW)
        if KEEP:
            put(n2_factors + kept * M, source, target, has_source, has_target, M, n2)
        value = tile(values + there * V, target, v, has_target, v < V, H * V)
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
    put(outs + row * V, source, v, has_source, v < V, H * V, out * share[:, None])
    if E2_VALUES:
        put(e2_outs + row * C, source, c, has_source, c < C, H * C, e2_out * share[:, None])
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
    n2_factors, e2_queries, e2_keys, e2_addresses, stats, address_outs,
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
    put(address_outs + row * A, source, a, has_source, has_a, H * A, found)
