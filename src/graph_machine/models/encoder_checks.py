"""What a `GraphEncoder` can be made of, and what a call may ask of it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graph_machine.config import ModelConfig
from graph_machine.config.model import MOST
from graph_machine.errors import ConfigError, GraphError, did_you_mean
from graph_machine.models.rounds import check_count

if TYPE_CHECKING:
    from graph_machine.models.encoder import GraphEncoder

NAME = "GraphEncoder"
LARGEST = 2**31 - 1

# What PyG's layers call the same things.
PYG_NAMES = {
    "in_channels": "d_in",
    "channels": "d_node",
    "hidden_channels": "d_node",
    "out_channels": "d_node",
    "edge_dim": "d_edge_in",
    "num_relations": "num_edge_types",
    "heads": "num_heads",
}


def check_sizes(padding: object, **sizes: int | None) -> None:
    """Sizes that were given are whole numbers from 1 on."""
    for name, size in sizes.items():
        if size is not None:
            check_count(f"{NAME}: {name}", size, 1, LARGEST)
    if sizes["d_in"] is not None and sizes["num_tokens"] is not None:
        raise ConfigError(f"{NAME}: x is features (d_in) or tokens (num_tokens), not both.")
    number = isinstance(padding, int | float) and not isinstance(padding, bool)
    if padding is not None and not (number and padding >= 0):
        raise ConfigError(f"{NAME}: padding should be a share from 0 on, or None, got {padding!r}.")


def check_known(settings: dict[str, Any], own: Iterable[str]) -> None:
    """Every setting is a field of the model's config; the way out may be one of our `own`."""
    names = ModelConfig.names()
    for name in settings:
        if name in names:
            continue
        known = [*(each for each in own if each not in ("self", "settings", *names)), *names]
        ours = PYG_NAMES.get(name)
        near = f" Did you mean '{ours}'?" if ours else did_you_mean(name, known)
        raise ConfigError(f"{NAME}: no setting '{name}'.{near} Known: {', '.join(known)}.")


def encoder_settings(
    address_space: str, recurrent: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Settings for the model's config, with the encoder's own defaults; none is ignored."""
    check_count(f"{NAME}: recurrent", recurrent, 0, MOST["rounds"])
    if recurrent and "rounds" in settings:
        raise ConfigError(
            f"{NAME}: recurrent={recurrent} says how many rounds there are; leave out "
            f"rounds={settings['rounds']}."
        )
    if settings.get("body", "graph-machine") != "graph-machine":
        raise ConfigError(
            f"{NAME}: body='{settings['body']}' is for GraphMachine; an encoder has Graph Machine "
            f"layers. Use PyG's own layers instead (examples/pyg_classifier.py)."
        )
    if settings.get("position", "none") != "none":
        raise ConfigError(
            f"{NAME}: position='{settings['position']}' needs a grid, which graphs do not have; "
            f"say num_positions= for an embedding per position, or add positions to x."
        )
    if address_space == "sparse":
        # The cost per node should not grow with k*s.
        settings = {"sparse_chains": 16} | settings
    if recurrent:
        settings = {"core_layers": 1, "core_edge_sublayers": 1, "rounds": recurrent} | settings
    return settings


def check_call(encoder: "GraphEncoder", rounds: int | None) -> int:
    """The rounds of a call, before anything runs."""
    dtype = encoder.norm.weight.dtype
    if encoder.backend == "reference" and dtype in (torch.float16, torch.bfloat16):
        raise ConfigError(
            f"{NAME}: backend='reference' needs float32 or float64 weights, got {dtype}; write "
            f"encoder.float(), or use autocast."
        )
    if encoder.core is None:
        if rounds is not None:
            raise ConfigError(f"{NAME}: rounds={rounds}, but it was made without recurrent=.")
        return 1
    rounds = encoder.config.rounds if rounds is None else rounds
    check_count(f"{NAME}: rounds", rounds, 1, MOST["rounds"])
    return rounds


def check_learns(encoder: "GraphEncoder", learning: bool) -> None:
    """Choices that are trained by their probabilities need these in the loss."""
    config = encoder.config
    choosing = config.address_space == "hard" and config.estimator == "reinforce"
    if choosing and learning and encoder.training and encoder.space is not None:
        raise ConfigError(
            f"{NAME}: estimator='reinforce' trains by the policy, which a call does not return; "
            f"say estimator='straight-through', or take dense_state(...).addresses.policy."
        )


def check_top(top: object) -> None:
    """How many targets of an edge are listed: 1 or more."""
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
        raise GraphError(f"{NAME}: top should be a whole number from 1 on, got {top!r}.")
