"""Addresses: distributions over target nodes."""

from graph_machine.ops.address.convert import one_hot_addresses, to_logits, to_weights
from graph_machine.ops.address.entropy import factor_entropy, normalised_entropy
from graph_machine.ops.address.select import keep_top_s
from graph_machine.ops.address.sharpen import sharpen

__all__ = [
    "factor_entropy",
    "keep_top_s",
    "normalised_entropy",
    "one_hot_addresses",
    "sharpen",
    "to_logits",
    "to_weights",
]
