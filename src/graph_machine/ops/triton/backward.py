"""Backward kernels. Weights are computed again from the log-sum-exp of their row.

The first goes over sources and leaves the n2 factors behind, so that the other two, which go over
targets, need not mix addresses again.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graph_machine.ops.triton.forward import (
    LOW,
    e2_factors,
    entropy_slope,
    mixed_addresses,
    put,
    slot_addresses,
    slot_log_sums,
    tile,
    turned,
    visible,
)


@triton.jit
@no_type_check
def address_worth(
    d_addresses, addresses, given, mask, shares, source, target, has_source, has_target,
    given_scale, slot, H, M, A, G, MADE, mask_n,
    GIVEN: tl.constexpr, EMPTY: tl.constexpr, MASK: tl.constexpr, BLOCK_A: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """What the addresses of one slot of all targets are worth to each source, (sources, targets).

    Gradients of collected addresses times these addresses; a given edge looks up its one target.
    """
    worth = tl.zeros([source.shape[0], target.shape[0]], tl.float32)
    stop = A
    if GIVEN:
        is_given = (slot >= MADE) & (slot < MADE + G)
        at = tl.load(given + target * G + (slot - MADE), mask=has_target & is_given, other=-1)
        inside = has_source[:, None] & (at >= 0)[None, :]
        where = source[:, None] * (H * A) + at[None, :]
        worth += given_scale * tl.load(d_addresses + where, mask=inside, other=0.0)
        stop = tl.where(is_given, 0, A)
    for first in range(0, stop, BLOCK_A):
        a = first + tl.arange(0, BLOCK_A)
        grad = tile(d_addresses, source, a, has_source, a < A, H * A)
        address = slot_addresses(
            addresses, given, mask, shares, target[None, :], a[:, None],
            given_scale, slot, M, A, G, MADE, mask_n, False, EMPTY, MASK,
        )  # fmt: skip
        worth += tl.dot(grad, address, input_precision=PRECISION)
    return worth


@triton.jit
@no_type_check
def sources_kernel(
    e1_weights, e1_addresses, edge_temps, n1_queries, n2_keys, e2_queries, e2_keys, n2_values,
    e2_values, mask, given, shares, e2_addresses, stats, deltas, entropy_rows, d_features, d_e2,
    d_addresses, n2_factors, slot_means, d_mixed, d_edge_temps, d_n1_queries, d_e2_queries,
    eps, given_scale, B, H, N, M, A, G, L, MADE, mask_b, mask_n,
    EDGE: tl.constexpr, NODE: tl.constexpr, E2: tl.constexpr, E2_VALUES: tl.constexpr,
    ADDRESSES: tl.constexpr, TEMPS: tl.constexpr, MASK: tl.constexpr,
    LOGIT_SPACE: tl.constexpr, ENTROPIES: tl.constexpr, SHARED: tl.constexpr, OWN: tl.constexpr,
    GIVEN: tl.constexpr, EMPTY: tl.constexpr, GIVEN_E2: tl.constexpr, EMPTY_E2: tl.constexpr,
    CONDITIONAL: tl.constexpr, STATS: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    D_PAD: tl.constexpr, E_PAD: tl.constexpr, V_PAD: tl.constexpr, C_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of what belongs to a source: queries, temperatures, its mixed addresses."""
    pair = tl.program_id(1).to(tl.int64)  # graph and head
    b, h = pair // H, pair % H
    source = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    has_source = source < N
    row, there, kept = b * N * H + h, b * M * H + h, pair * N
    chains = (b if SHARED else pair) * M * L
    there_given = given + b * M * G if GIVEN_E2 else given
    stat = stats + kept * STATS + source * STATS
    d, e = tl.arange(0, D_PAD), tl.arange(0, E_PAD)
    v, c = tl.arange(0, V_PAD), tl.arange(0, C_PAD)
    if NODE:
        query = tile(n1_queries + row * D, source, d, has_source, d < D, H * D)
        query_grad = tl.zeros([BLOCK_N, D_PAD], tl.float32)
    if E2:
        e2_query = tile(e2_queries + row * E, source, e, has_source, e < E, H * E)
        e2_query_grad = tl.zeros([BLOCK_N, E_PAD], tl.float32)
    if TEMPS:
        temps = tl.load(edge_temps + row + source * H, mask=has_source, other=0.0).to(tl.float32)
        temp_grad = tl.zeros([BLOCK_N], tl.float32)
    log_sums = tl.load(stat, mask=has_source, other=-LOW)
    delta = tl.load(deltas + kept + source, mask=has_source, other=0.0)
    above = tile(d_features + row * V, source, v, has_source, v < V, H * V)
    if E2_VALUES:
        e2_above = tile(d_e2 + row * C, source, c, has_source, c < C, H * C)
    for start in range(0, M, BLOCK_M):
        target = start + tl.arange(0, BLOCK_M)
        has_target = target < M
        allowed = visible(
            mask + b * mask_b if MASK else mask,
            source, target, has_source, has_target, mask_n, MASK,
        )  # fmt: skip
        n2 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        if EDGE:
            mixed = mixed_addresses(
                e1_weights + row * (K + G + EMPTY), e1_addresses + b * N * K * M,
                given + b * N * G if GIVEN else given, shares + b * N if EMPTY else shares,
                source, target, has_source, has_target, allowed,
                given_scale, H, M, G, K, GIVEN, EMPTY,
            )  # fmt: skip
            edge = mixed if LOGIT_SPACE else tl.log(tl.maximum(mixed, eps))
            n2 += edge * temps[:, None] if TEMPS else edge
        if NODE:
            key = turned(n2_keys + there * D, target, d, has_target, d < D, H * D)
            factor = tl.dot(query, key, input_precision=PRECISION)
            n2 += factor
        if CONDITIONAL:
            slot_sums = slot_log_sums(
                e2_query, e2_keys + chains * E, there_given, source, target, has_target,
                e, L, MADE, G, E, GIVEN_E2, PRECISION,
            )  # fmt: skip
            n2 -= slot_sums
            mean = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        n2 = tl.where(allowed, n2, LOW)
        put(n2_factors + kept * M, source, target, has_source, has_target, M, n2)
        value = turned(n2_values + there * V, target, v, has_target, v < V, H * V)
        from_values = tl.dot(above, value, input_precision=PRECISION)
        slope = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        for l in range(L):
            logits, worth = n2, from_values
            if E2:
                factors = e2_factors(
                    e2_query, e2_keys + chains * E, there_given, target, has_target,
                    e, l, L, MADE, G, E, GIVEN_E2, PRECISION,
                )  # fmt: skip
                logits += factors
            if E2_VALUES:
                here = e2_values + (chains + l) * C
                e2_value = turned(here, target, c, has_target, c < C, L * C)
                worth += tl.dot(e2_above, e2_value, input_precision=PRECISION)
            if ADDRESSES:
                worth += address_worth(
                    d_addresses + row * A, e2_addresses + b * M * MADE * A, there_given,
                    mask + b * mask_b if MASK else mask, shares + b * M if EMPTY_E2 else shares,
                    source, target, has_source, has_target, given_scale, h if OWN else l,
                    H, M, A, G, MADE, mask_n, GIVEN_E2, EMPTY_E2, MASK, BLOCK_A, PRECISION,
                )  # fmt: skip
            weights = tl.exp(logits - log_sums[:, None])
            pull = weights * (worth - delta[:, None])
            slope += pull
            if CONDITIONAL:
                mean += tl.exp(factors - slot_sums) * worth
                pull = weights * worth
            if E2:
                e2_key = tile(e2_keys + (chains + l) * E, target, e, has_target, e < E, L * E)
                e2_query_grad += tl.dot(pull, e2_key, input_precision=PRECISION)
        if CONDITIONAL:
            # Slots of one n2 compete with each other only: they gain by their worth less the mean.
            put(slot_means + kept * M, source, target, has_source, has_target, M, mean)
            for l in range(L):
                factors = e2_factors(
                    e2_query, e2_keys + chains * E, there_given, target, has_target,
                    e, l, L, MADE, G, E, GIVEN_E2, PRECISION,
                )  # fmt: skip
                pull = tl.exp(n2 + factors - log_sums[:, None]) * mean
                e2_key = tile(e2_keys + (chains + l) * E, target, e, has_target, e < E, L * E)
                e2_query_grad -= tl.dot(pull, e2_key, input_precision=PRECISION)
        if NODE:
            node_slope = slope
            if ENTROPIES:
                rows = tl.load(entropy_rows + (B + b) * N + source, mask=has_source, other=0.0)
                sums = tl.load(stat + 3, mask=has_source, other=0.0)
                found = tl.load(stat + 4, mask=has_source, other=0.0)
                node_slope += entropy_slope(factor, allowed, rows, sums, found)
            key = tile(n2_keys + there * D, target, d, has_target, d < D, H * D)
            query_grad += tl.dot(node_slope, key, input_precision=PRECISION)
        if EDGE:
            if ENTROPIES:
                rows = tl.load(entropy_rows + b * N + source, mask=has_source, other=0.0)
                sums = tl.load(stat + 1, mask=has_source, other=0.0)
                found = tl.load(stat + 2, mask=has_source, other=0.0)
                scaled = edge * temps[:, None] if TEMPS else edge
                slope += entropy_slope(scaled, allowed, rows, sums, found)
            if TEMPS:
                temp_grad += tl.sum(slope * edge, axis=1)
                slope *= temps[:, None]
            if not LOGIT_SPACE:
                slope = tl.where(mixed >= eps, slope / tl.maximum(mixed, eps), 0.0)
            put(d_mixed + row * M, source, target, has_source, has_target, H * M, slope)
    if NODE:
        put(d_n1_queries + row * D, source, d, has_source, d < D, H * D, query_grad)
    if E2:
        put(d_e2_queries + row * E, source, e, has_source, e < E, H * E, e2_query_grad)
    if TEMPS:
        tl.store(d_edge_temps + row + source * H, temp_grad, mask=has_source)


@triton.jit
@no_type_check
def targets_kernel(
    n1_queries, n2_keys, e2_queries, e2_keys, n2_values, e2_values, e2_addresses, mask, given,
    shares, stats, deltas, entropy_rows, d_features, d_e2, d_addresses, n2_factors, slot_means,
    d_n2_keys, d_e2_keys, d_n2_values, d_e2_values,
    given_scale, B, H, N, M, A, G, L, MADE, mask_b, mask_n,
    NODE: tl.constexpr, E2: tl.constexpr, E2_VALUES: tl.constexpr, ADDRESSES: tl.constexpr,
    ENTROPIES: tl.constexpr, SHARED: tl.constexpr, OWN: tl.constexpr, MASK: tl.constexpr,
    GIVEN_E2: tl.constexpr, EMPTY_E2: tl.constexpr, CONDITIONAL: tl.constexpr,
    STATS: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    D_PAD: tl.constexpr, E_PAD: tl.constexpr, V_PAD: tl.constexpr, C_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of what belongs to a target, for one head: keys and values. Tiles are (m, n)."""
    pair = tl.program_id(1).to(tl.int64)  # graph and head
    b, h = pair // H, pair % H
    target = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    has_target = target < M
    row, there, kept = b * N * H + h, b * M * H + h, pair * N
    chains = (b if SHARED else pair) * M * L
    there_given = given + b * M * G if GIVEN_E2 else given
    d, e = tl.arange(0, D_PAD), tl.arange(0, E_PAD)
    v, c = tl.arange(0, V_PAD), tl.arange(0, C_PAD)
    value = tile(n2_values + there * V, target, v, has_target, v < V, H * V)
    value_grad = tl.zeros([BLOCK_M, V_PAD], tl.float32)
    if NODE:
        key = tile(n2_keys + there * D, target, d, has_target, d < D, H * D)
        key_grad = tl.zeros([BLOCK_M, D_PAD], tl.float32)
    for l in range(L):
        if GIVEN_E2:
            is_given = (l >= MADE) & (l < MADE + G)
            at = tl.load(there_given + target * G + (l - MADE), mask=has_target & is_given, other=0)
            is_edge = at >= 0
        if E2:
            here = e2_keys + (chains + l) * E
            e2_key = tile(here, target, e, has_target, e < E, L * E)
            e2_key_grad = tl.zeros([BLOCK_M, E_PAD], tl.float32)
        if E2_VALUES:
            here = e2_values + (chains + l) * C
            e2_value = tile(here, target, c, has_target, c < C, L * C)
            e2_value_grad = tl.zeros([BLOCK_M, C_PAD], tl.float32)
        for start in range(0, N, BLOCK_N):
            source = start + tl.arange(0, BLOCK_N)
            has_source = source < N
            stat = stats + kept * STATS + source * STATS
            inside = has_target[:, None] & has_source[None, :]
            where = source[None, :] * M + target[:, None]
            n2 = tl.load(n2_factors + kept * M + where, mask=inside, other=LOW)
            logits = n2
            if E2:
                e2_query = turned(e2_queries + row * E, source, e, has_source, e < E, H * E)
                logits += tl.dot(e2_key, e2_query, input_precision=PRECISION)
            if GIVEN_E2:
                logits = tl.where(is_edge[:, None], logits, LOW)
            log_sums = tl.load(stat, mask=has_source, other=-LOW)
            delta = tl.load(deltas + kept + source, mask=has_source, other=0.0)
            weights = tl.exp(logits - log_sums[None, :])
            above = turned(d_features + row * V, source, v, has_source, v < V, H * V)
            worth = tl.dot(value, above, input_precision=PRECISION)
            above = tile(d_features + row * V, source, v, has_source, v < V, H * V)
            value_grad += tl.dot(weights, above, input_precision=PRECISION)
            if E2_VALUES:
                e2_above = turned(d_e2 + row * C, source, c, has_source, c < C, H * C)
                worth += tl.dot(e2_value, e2_above, input_precision=PRECISION)
                e2_above = tile(d_e2 + row * C, source, c, has_source, c < C, H * C)
                e2_value_grad += tl.dot(weights, e2_above, input_precision=PRECISION)
            if ADDRESSES:
                found = address_worth(
                    d_addresses + row * A, e2_addresses + b * M * MADE * A, there_given,
                    mask + b * mask_b if MASK else mask, shares + b * M if EMPTY_E2 else shares,
                    source, target, has_source, has_target, given_scale, h if OWN else l,
                    H, M, A, G, MADE, mask_n, GIVEN_E2, EMPTY_E2, MASK, BLOCK_A, PRECISION,
                )  # fmt: skip
                worth += tl.trans(found)
            slope = weights * (worth - delta[None, :])
            if E2:
                pull = slope
                if CONDITIONAL:
                    mean = tl.load(slot_means + kept * M + where, mask=inside, other=0.0)
                    pull = weights * (worth - mean)
                e2_query = tile(e2_queries + row * E, source, e, has_source, e < E, H * E)
                e2_key_grad += tl.dot(pull, e2_query, input_precision=PRECISION)
            if NODE:
                query = tile(n1_queries + row * D, source, d, has_source, d < D, H * D)
                if ENTROPIES:
                    # Once per pair of nodes, so with the first slot alone.
                    rows = tl.load(entropy_rows + (B + b) * N + source, mask=has_source, other=0.0)
                    sums = tl.load(stat + 3, mask=has_source, other=0.0)
                    found = tl.load(stat + 4, mask=has_source, other=0.0)
                    across = turned(n1_queries + row * D, source, d, has_source, d < D, H * D)
                    logs = tl.dot(key, across, input_precision=PRECISION) - sums[None, :]
                    logs = tl.where(n2 > 0.5 * LOW, logs, LOW)
                    once = tl.where(l == 0, -rows, 0.0)
                    slope += once[None, :] * tl.exp(logs) * (logs + found[None, :])
                key_grad += tl.dot(slope, query, input_precision=PRECISION)
        per_head = pair * M * L + l
        if E2:
            here = d_e2_keys + per_head * E
            put(here, target, e, has_target, e < E, L * E, e2_key_grad)
        if E2_VALUES:
            here = d_e2_values + per_head * C
            put(here, target, c, has_target, c < C, L * C, e2_value_grad)
    put(d_n2_values + there * V, target, v, has_target, v < V, H * V, value_grad)
    if NODE:
        put(d_n2_keys + there * D, target, d, has_target, d < D, H * D, key_grad)


@triton.jit
@no_type_check
def addresses_kernel(
    n2_factors, e2_queries, e2_keys, stats, d_addresses, d_e2_addresses,
    H, N, M, A, L, MADE, HEADS, E2: tl.constexpr, SHARED: tl.constexpr,
    E: tl.constexpr, E_PAD: tl.constexpr, STATS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of collected addresses: summed over heads where these share them (HEADS = H)."""
    sets = H // HEADS
    slots = MADE // sets
    group, l = (tl.program_id(2) // slots).to(tl.int64), tl.program_id(2) % slots
    b, first_head = group // sets, (group % sets).to(tl.int32) * HEADS
    target = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    a = tl.program_id(1) * BLOCK_A + tl.arange(0, BLOCK_A)
    has_target, has_a = target < M, a < A
    e = tl.arange(0, E_PAD)
    found = tl.zeros([BLOCK_M, BLOCK_A], tl.float32)
    for h in range(first_head, first_head + HEADS):
        pair, row = b * H + h, b * N * H + h
        if E2:
            here = e2_keys + ((b if SHARED else pair) * M * L + l) * E
            e2_key = tile(here, target, e, has_target, e < E, L * E)
        for start in range(0, N, BLOCK_N):
            source = start + tl.arange(0, BLOCK_N)
            has_source = source < N
            inside = has_target[:, None] & has_source[None, :]
            where = source[None, :] * M + target[:, None]
            logits = tl.load(n2_factors + pair * N * M + where, mask=inside, other=LOW)
            if E2:
                e2_query = turned(e2_queries + row * E, source, e, has_source, e < E, H * E)
                logits += tl.dot(e2_key, e2_query, input_precision=PRECISION)
            stat = stats + pair * N * STATS + source * STATS
            log_sums = tl.load(stat, mask=has_source, other=-LOW)
            grad = tile(d_addresses + row * A, source, a, has_source, has_a, H * A)
            weights = tl.exp(logits - log_sums[None, :])
            found += tl.dot(weights, grad, input_precision=PRECISION)
    here = d_e2_addresses + (b * M * MADE + (group % sets) * slots + l) * A
    put(here, target, a, has_target, has_a, MADE * A, found)
