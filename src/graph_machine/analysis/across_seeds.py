"""What the detectors find, by layer, over the seeds of a condition."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from graph_machine.analysis.markdown import over_seeds_text
from graph_machine.analysis.mechanisms import HELD
from graph_machine.analysis.regions import EdgeSums
from graph_machine.analysis.statistics import Statistics, by_place


def _known(
    values: Float[np.ndarray, "slot source"], summary: Callable[[np.ndarray], Any] = np.mean
) -> float:
    known = values[~np.isnan(values)]
    return float(summary(known)) if len(known) else math.nan


def _built(name: str) -> Callable[[EdgeSums], float]:
    return lambda sums: float(dict(zip(sums.regions, sums.built()))[name])


# Heading, and its value in one place of one model.
BY_SEED: dict[str, Callable[[EdgeSums], float]] = {
    "reach": lambda sums: _known(sums.mean_reach()),
    "farthest": lambda sums: _known(sums.mean_reach(), np.max),
    "self mass": lambda sums: float(sums.self_mass().mean()),
    "self slots": lambda sums: float((sums.self_mass() > HELD).any(axis=0).mean()),
    **{name: _built(name) for name in ("box", "row", "column", "cross+box")},
    "adaptivity": lambda sums: _known(sums.adaptivity()),
}


def over_seeds(found: Sequence[Statistics]) -> list[list[str]]:
    """One row per layer, as BY_SEED says, of the edges that referral makes; empty without edges."""
    rows = []
    for label, part in by_place(found):
        for layer in sorted({layer for one in part for layer, _ in one.edges}):
            mine = [s for one in part if (s := one.edges.get((layer, "edge:out"))) is not None]
            if mine and "box" in mine[0].regions:
                values = [over_seeds_text([f(s) for s in mine]) for f in BY_SEED.values()]
                rows.append([label.format(layer), *values])
    return rows
