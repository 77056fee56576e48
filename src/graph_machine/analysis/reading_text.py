"""What a recurrent core reads, as Markdown for people and as plain data for JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from graph_machine.analysis.markdown import grid
from graph_machine.analysis.reading import ReadSums
from graph_machine.analysis.regions import best_regions
from graph_machine.analysis.statistics import Statistics


def reading_text(name: str, found: Sequence[Statistics]) -> str:
    """Edge slots and regions that the core's attention reads, of the first seed with a core."""
    one = next((one for one in found if any(part.reading for part in one.core.values())), None)
    if one is None:
        return ""
    told = f"The first and the last round, mean over heads, cells and {one.detected} examples."
    slots, regions = _slots_text(one), _regions_text(one)
    if slots:
        told += (
            " Slots: the region that an edge of the core fits best, with its overlap, and the "
            "share of e1 weight that attention gives to it."
        )
    if regions:
        told += (
            " Regions: attention's mass inside, and the head with the most; even: attention spread "
            "over all places alike."
        )
    parts = [f"### What the core reads: {name}", told, slots, regions]
    return "\n\n".join(part for part in parts if part)


def _slots_text(one: Statistics) -> str:
    rows: dict[str, list[str]] = {}
    for layer in sorted({layer for part in one.core.values() for layer in part.reading}):
        for number, part in one.core.items():
            sums = part.edges.get((layer, "node:in"))
            if sums is not None:
                best = best_regions(sums.region_scores(), list(sums.regions))
                words = [f"{region} {overlap:.2f}" for region, overlap in best]
                # Edges that stay are told once.
                rows.setdefault(f"core l{layer}: edges", words)
                if rows[f"core l{layer}: edges"] != words:
                    rows[f"core l{layer}: edges, round {number}"] = words
        for number, part in one.core.items():
            shares = part.reading[layer].slot_shares()
            if shares is not None:
                rows[f"core l{layer}: read in round {number}"] = [f"{v:.2f}" for v in shares]
    if not rows:
        return ""
    slots = len(next(iter(rows.values())))
    return grid(
        ["slot", *(f"e{slot}" for slot in range(slots))], [[k, *v] for k, v in rows.items()]
    )


def _regions_text(one: Statistics) -> str:
    rows = []
    last: ReadSums | None = None
    for number, part in one.core.items():
        for layer, sums in sorted(part.reading.items()):
            masses = sums.masses()
            if masses is not None:
                rows.append([f"core l{layer}, round {number}", *map(_most, masses)])
                last = sums
    if last is None:
        return ""
    rows.append(["even", *(f"{value:.2f}" for value in last.even())])
    return grid(["attention inside", *last.told], rows)


def _most(heads: Float[np.ndarray, "head"]) -> str:
    """The mean over heads, and the head with the most."""
    return f"{heads.mean():.2f} (a{heads.argmax()} {heads.max():.2f})"


def reading_data(one: Statistics) -> dict[str, Any]:
    """By layer: shares of slots, and masses of regions by head."""
    found = {}
    for layer, sums in sorted(one.reading.items()):
        shares, masses = sums.slot_shares(), sums.masses()
        found[str(layer)] = {
            "slots": None if shares is None else shares.tolist(),
            "regions": None if masses is None else dict(zip(sums.told, masses.tolist())),
        }
    return found
