"""What a `GraphEncoder` is made of, checked once: invalid settings raise a one-line error."""

from collections.abc import Iterable
from typing import Any

from graph_machine.config import ModelConfig
from graph_machine.config.model import MOST_ROUNDS
from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.models.predict import check_count

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


def refuse_positional(given: tuple[object, ...]) -> None:
    """Sizes have names: PyG's layers take widths by position, in an order of their own."""
    if given:
        raise ConfigError(
            f"{NAME}: sizes are given by name, got {given[0]!r} by position; write "
            f"GraphEncoder(d_in=..., d_node=..., num_layers=...)."
        )


def check_sizes(padding: object, shares: dict[str, float], **sizes: int | None) -> None:
    """Sizes that were given are whole numbers from 1 on."""
    for name, share in shares.items():
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise ConfigError(f"{NAME}: {name} should be a share from 0 to below 1, got {share!r}.")
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
        known = [
            *(each for each in own if each not in ("self", "positional", "settings", *names)),
            *names,
        ]
        ours = PYG_NAMES.get(name)
        near = f" Did you mean '{ours}'?" if ours else did_you_mean(name, known)
        raise ConfigError(f"{NAME}: no setting '{name}'.{near} Known: {', '.join(known)}.")


def with_given_edges(
    config: ModelConfig,
    given: str | None,
    empty: bool | None,
    values: bool | None,
    ends: bool,
    wide: int | None,
) -> ModelConfig:
    """None is the encoder's own choice: edges stay, but only in the dense address spaces; where
    they stay, they are what attention follows first, and one head in four begins without them."""
    dense = config.address_space in ("weight", "logit")
    if given is None:
        given = "always" if dense and config.reads_edges else "first"
    if wide is None:
        fits = dense and given == "always" and config.attention_experts == "both"
        wide = config.num_heads // 4 if fits and config.factor_temps else 0
    return config.replace(
        given_edges=given,
        empty_edge=dense and config.has_edges if empty is None else empty,
        edge_values=config.attention_experts != "node" if values is None else values,
        edge_ends=ends,
        global_heads=wide,
    )


def encoder_settings(
    address_space: str, recurrent: int, d_node: int, num_layers: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Settings for the model's config, with the encoder's own defaults; none is ignored."""
    settings = {
        "referral": "joint" if address_space == "hard" else "preaggregated",
        "num_heads": max(1, d_node // 8),
        "init": "torch",
        "expansion": 2,
        **settings,
    }
    if settings.get("attention_experts") != "node":
        settings = {"num_edge_sublayers": (num_layers + 3) // 4} | settings
    check_count(f"{NAME}: recurrent", recurrent, 0, MOST_ROUNDS)
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
