"""Pure functions of tensors: the mechanisms of the paper without parameters or configuration."""

from graph_machine.ops.address.dense import (
    factor_entropy,
    keep_top_s,
    normalised_entropy,
    one_hot_addresses,
    sharpen,
    to_logits,
    to_weights,
)
from graph_machine.ops.attention import edge_augmented_attention
from graph_machine.ops.numerics import ADDRESS_EPS, temperature
from graph_machine.ops.position import rotary_angles, rotate, sinusoidal_positions
from graph_machine.ops.referral import REFERRAL_KINDS, edge_centric_referral

__all__ = [
    "ADDRESS_EPS",
    "REFERRAL_KINDS",
    "edge_augmented_attention",
    "edge_centric_referral",
    "factor_entropy",
    "keep_top_s",
    "normalised_entropy",
    "one_hot_addresses",
    "rotary_angles",
    "rotate",
    "sharpen",
    "sinusoidal_positions",
    "temperature",
    "to_logits",
    "to_weights",
]
