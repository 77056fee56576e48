"""Attention through a decoder: the edge factor as a dot product (paper, 2.5, first direction).

An address is a vector of width c; its logit at node m is the dot product with row m of a decoder.
So edge and node factors of all pairs are one dot product of concatenated queries and keys, and
`scaled_dot_product_attention` does the rest without any tensor of n x n.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from graph_machine.ops.address.entropy import factor_entropy
from graph_machine.ops.numerics import in_float32

# Added to the logit of a padded node; exp of it is exactly 0 in every dtype.
PADDING_LOGIT = -1e4
# Queries per block where a mask or an entropy needs blocks: memory O(block * n).
BLOCK_QUERIES = 64


def padding_column(
    node_mask: Bool[Tensor, "b n"] | None, like: Float[Tensor, "b h n d"]
) -> list[Float[Tensor, "b h n 1"]]:
    """A key feature that is 0 at real nodes and very low at padding; queries meet it with 1.

    In this form padding needs no mask, which is free to be causal. Empty without padding.
    """
    if node_mask is None:
        return []
    column = torch.where(node_mask, 0.0, PADDING_LOGIT).to(like.dtype)
    return [column[:, None, :, None].expand(*like.shape[:3], 1)]


def ones_column(
    node_mask: Bool[Tensor, "b n"] | None, like: Float[Tensor, "b h n d"]
) -> list[Float[Tensor, "b h n 1"]]:
    """What queries hold opposite `padding_column`."""
    return [] if node_mask is None else [like.new_ones(*like.shape[:3], 1)]


def dot_product_attention(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    values: Float[Tensor, "b h m v"],
    *,
    causal: bool,
    slots: int = 1,
) -> Float[Tensor, "b h n v"]:
    """softmax(queries . keys) values, only with `scaled_dot_product_attention`.

    Keys are n nodes, or slot by slot `slots` times the n nodes. Widths are padded with zeros to the
    same number, without which the fused kernels decline. A causal mask over several slots is not
    triangular: queries then go in blocks, each with keys up to its last node and its own mask.
    """
    width = max(queries.shape[-1], values.shape[-1])
    width = math.ceil(width / 8) * 8  # the alignment that GPU kernels ask for
    v = values.shape[-1]
    queries, keys, values = (
        functional.pad(x, (0, width - x.shape[-1])) for x in (queries, keys, values)
    )
    attend = functional.scaled_dot_product_attention
    if slots == 1 or not causal:
        return attend(queries, keys, values, is_causal=causal, scale=1.0)[..., :v]
    n = queries.shape[2]
    keys, values = (x.unflatten(2, (slots, n)) for x in (keys, values))
    places = torch.arange(n, device=queries.device)
    outs = []
    for start in range(0, n, BLOCK_QUERIES):
        stop = min(start + BLOCK_QUERIES, n)
        allowed = places[start:stop, None] >= places[:stop].repeat(slots)  # i (l m)
        outs.append(
            attend(
                queries[:, :, start:stop],
                keys[:, :, :, :stop].flatten(2, 3),
                values[:, :, :, :stop].flatten(2, 3),
                attn_mask=allowed,
                scale=1.0,
            )
        )
    return torch.cat(outs, dim=2)[..., :v]


def product_entropy(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    node_mask: Bool[Tensor, "b n"] | None,
    causal: bool,
) -> Float[Tensor, ""]:
    """Mean normalised entropy of softmax(queries . keys), in blocks of queries.

    Equals `factor_entropy` of the whole product. Backward makes each block again, so memory is
    O(n) and time the same as attention's.
    """
    queries, keys = in_float32(queries), in_float32(keys)
    n = queries.shape[2]
    total = queries.new_zeros(())
    for start in range(0, n, BLOCK_QUERIES):
        part = slice(start, min(start + BLOCK_QUERIES, n))
        arguments = queries[:, :, part], keys, node_mask, causal, part
        total = total + checkpoint(_entropy_block, *arguments, use_reentrant=False)
    sources = queries.shape[0] * n if node_mask is None else node_mask.sum().clamp_min(1)
    return total / (sources * queries.shape[1])


def _entropy_block(
    queries: Tensor, keys: Tensor, node_mask: Tensor | None, causal: bool, part: slice
) -> Tensor:
    """Sum of the normalised entropies of a block of queries, over real sources."""
    places = torch.arange(keys.shape[2], device=keys.device)
    mask = None if node_mask is None else node_mask.unsqueeze(-2)  # b 1 m
    if causal:
        past = (places <= places[part, None]).unsqueeze(0)  # 1 i m
        mask = past if mask is None else mask & past
    sources = None if node_mask is None else node_mask[:, part]
    count = queries.shape[0] * queries.shape[2] if sources is None else sources.sum()
    return factor_entropy(queries @ keys.mT, mask, sources) * count * queries.shape[1]
