"""Self-referral, heads, experts and rounds as Markdown for people and as plain data for JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_machine.analysis.markdown import grid, over_seeds_text
from graph_machine.analysis.mechanisms import ALIKE, HELD, Place, RoundSums
from graph_machine.analysis.reading_text import reading_text
from graph_machine.analysis.regions import SameHead
from graph_machine.analysis.statistics import Statistics, by_place

REGIONS = ("box", "row", "column", "cross", "cross+box")
SUBLAYERS = {"edge": "referral (n2)", "node": "attention"}


def self_text(name: str, found: Sequence[Statistics]) -> str:
    """Referral to a cell's own edges, by layer."""
    table = {
        label.format(layer): [s.row() for one in part if (s := one.mechanisms.own.get(layer))]
        for label, part in by_place(found)
        for layer in sorted({layer for one in part for layer in one.mechanisms.own})
    }
    if not table:
        return ""
    heads = list(next(iter(table.values()))[0])
    rows = [
        [label, *(over_seeds_text([row[head] for row in mine]) for head in heads)]
        for label, mine in table.items()
    ]
    note = (
        "N2 weight and softmax(n2 edge factor) on the source cell itself, mean over heads and "
        f"cells. Self-referring: share of heads and cells with more than {HELD:g} of the n2 weight "
        "on the source. Without self-edge: share of these whose cell has no edge, as referral "
        f"sees it, with more than {HELD:g} of its mass on the cell; and the edge factor's mass on "
        "the source there."
    )
    return f"### Self-referral: {name}\n\n{note}\n\n" + grid(["layer", *heads], rows)


def best_heads(one: Statistics) -> dict[str, tuple[int, SameHead]]:
    """Region -> the layer whose edges cover it best, and the head that makes it there."""
    made = {layer: sums for (layer, place), sums in one.edges.items() if place == "edge:out"}
    found = {}
    for region in REGIONS:
        known = {n: dict(zip(s.regions, s.built())) for n, s in made.items() if region in s.regions}
        if known:
            layer = max(known, key=lambda n: known[n][region])
            found[region] = (layer, made[layer].same_head(region))
    return found


def heads_text(name: str, found: Sequence[Statistics]) -> str:
    """Whether the same head makes a region in every sample; a row per region and seed."""
    rows = [
        [
            region,
            f"l{layer}r{same.head}",
            f"{same.overlap:.2f}",
            f"{same.samples} of {one.detected}",
            f"{100 * same.cells:.0f}%",
        ]
        for one in found
        for region, (layer, same) in best_heads(one).items()
    ]
    if not rows:
        return ""
    note = (
        "For each region, the layer whose edges cover it best and the referral head that makes it "
        "there: its overlap, the samples in which it does so better than every other head of its "
        "layer (mean over cells), and how often the best head of a cell is that cell's usual one."
    )
    head = ["region", "head", "overlap", "best head in samples", "a cell's usual head"]
    return f"### The same head across samples: {name}\n\n{note}\n\n" + grid(head, rows)


def experts_text(name: str, found: Sequence[Statistics]) -> str:
    """Whether one expert makes the weights, or both, by layer."""
    parts = by_place(found)
    places = [p for _, part in parts for one in part for p in sorted(one.mechanisms.experts)]
    if not places:
        return ""
    kinds = sorted({place.sublayer for place in places})
    rows, heads = [], ["layer"]
    for kind in kinds:
        heads += [f"{SUBLAYERS[kind]}: both", "edge alone", "node alone", "either"]
    for label, part in parts:
        for layer in sorted({place.layer for one in part for place in one.mechanisms.experts}):
            row = [label.format(layer)]
            for kind in kinds:
                place = Place(layer, kind)
                mine = [s.row() for one in part if (s := one.mechanisms.experts.get(place))]
                shares = ("both", "edge alone", "node alone", "either")
                row += [over_seeds_text([each[share] for each in mine]) for share in shares]
            rows.append(row)
    note = (
        "Share of samples, heads and cells. An expert makes the weights alone where softmax(edge "
        f"factor + node factor) is within {ALIKE:g} (total variation) of its own softmax and not "
        "of the other's; either: of both; both: of neither. The e2 factor of referral is left out."
    )
    return f"### Experts: {name}\n\n{note}\n\n" + grid(heads, rows)


def rounds_text(name: str, found: Sequence[Statistics]) -> str:
    """When answers are decided and whether they are undone, of the first seed with a core."""
    sums = next((one.rounds for one in found if one.rounds is not None), None)
    if sums is None:
        return ""
    rows = [
        [
            str(number + 1),
            f"{sums.decided[number]:,}",
            f"{100 * sums.decided[: number + 1].sum() / sums.cells:.1f}%",
            f"{100 * sums.right[number] / sums.cells:.1f}%",
            f"{sums.lost[number]:,}",
            f"{100 * sums.solved[number] / sums.samples:.1f}%",
        ]
        for number in range(len(sums.right))
    ]
    note = (
        f"{sums.samples:,} examples with {sums.cells:,} places to answer. Decided: the answer no "
        "longer changes after this round; undone: right after the round before, wrong after this "
        f"one. Ever undone: {sums.ever_undone:,} places ({100 * sums.ever_undone / sums.cells:.1f}"
        f"%), of which {sums.restored:,} are right again after the last round."
    )
    head = ["round", "decided", "decided so far", "right", "undone", "solved"]
    return f"### Rounds: {name}\n\n{note}\n\n" + grid(head, rows)


def mechanisms_text(name: str, found: Sequence[Statistics]) -> list[str]:
    """The parts that these models have."""
    parts = (rounds_text, reading_text, self_text, heads_text, experts_text)
    return [text for part in parts if (text := part(name, found))]


def mechanisms_data(one: Statistics) -> dict[str, Any]:
    """The same of one model, for JSON."""
    return {
        "self_referral": {str(k): _finite(v.row()) for k, v in sorted(one.mechanisms.own.items())},
        "experts": {
            f"{place.layer}.{place.sublayer}": _finite(sums.row())
            for place, sums in sorted(one.mechanisms.experts.items())
        },
        "same_head": {
            region: {"layer": layer} | same._asdict()
            for region, (layer, same) in best_heads(one).items()
        },
        "rounds": None if one.rounds is None else _rounds_data(one.rounds),
    }


def _rounds_data(sums: RoundSums) -> dict[str, Any]:
    values = {name: value for name, value in vars(sums).items() if not name.startswith("_")}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}


def _finite(row: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in row.items()}
