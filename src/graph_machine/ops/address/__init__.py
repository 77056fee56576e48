"""Addresses: distributions over target nodes."""

from graph_machine.ops.address.dense import (
    factor_entropy,
    keep_top_s,
    normalised_entropy,
    one_hot_addresses,
    sharpen,
    to_logits,
    to_weights,
)

__all__ = [
    "factor_entropy",
    "keep_top_s",
    "normalised_entropy",
    "one_hot_addresses",
    "sharpen",
    "to_logits",
    "to_weights",
]
