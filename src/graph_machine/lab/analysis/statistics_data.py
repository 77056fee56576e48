"""Statistics and detectors as plain data for JSON, and as a DataFrame."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_machine.errors import MissingExtraError
from graph_machine.lab.analysis.mechanisms import RoundSums
from graph_machine.lab.analysis.regions import SameHead, best_regions
from graph_machine.lab.analysis.statistics import (
    COLUMNS,
    PAPER,
    PAPER_BUDGET,
    Group,
    Spread,
    Statistics,
    spread,
    spread_by_layer,
)
from graph_machine.lab.records.naming import cell_name, paper_cells

if TYPE_CHECKING:
    from pandas import DataFrame

Pair = tuple[int, int]
REGIONS = ("box", "row", "column", "cross", "cross+box")


def over_numbers(summary: Callable[[np.ndarray], float], values: np.ndarray) -> float:
    """A summary of the values that are numbers; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(summary(known)) if len(known) else math.nan


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


def measures(found: Sequence[Statistics], grid: Pair | None, box: Pair | None) -> dict[str, Any]:
    """Means over seeds; what detectors found is of the first seed."""
    one = found[0]
    return {
        "means": {
            ".".join(column): _spread_data(value)
            for column in COLUMNS
            if (value := spread(found, column)) is not None
        },
        "by_layer": {
            ".".join(column): {str(k): _spread_data(v) for k, v in layers.items()}
            for column in COLUMNS
            if (layers := spread_by_layer(found, column))
        },
        "edges": _edges_data(one, grid, box),
        "built": [
            {"layer": layer, "place": place}
            | dict(zip(sums.regions, sums.built().tolist(), strict=True))
            for (layer, place), sums in sorted(one.edges.items())
        ],
        "labour": [
            {"layer": layer, "factor": ".".join(column)}
            | {name: _finite(share) for name, share in sums.shares().items()}
            for (layer, column), sums in sorted(one.labour.items())
        ],
        "mechanisms": mechanisms_data(one),
        "reading": reading_data(one),
    }


def _spread_data(value: Spread) -> dict[str, Any]:
    return {"mean": value.mean, "deviation": value.deviation, "seeds": value.count}


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _edges_data(one: Statistics, grid: Pair | None, box: Pair | None) -> list[dict[str, Any]]:
    """One entry per layer, place and slot."""
    rows = []
    cells = () if grid is None else paper_cells(*grid, box)
    for (layer, place), sums in sorted(one.edges.items()):
        scores, names = sums.region_scores(), list(sums.regions)
        adaptivity, hops = sums.adaptivity(), sums.mean_reach()
        for slot, (best, score) in enumerate(best_regions(scores, names)):
            means = np.nanmean(scores[:, slot], axis=-1)
            of_cells = {}
            for cell in cells:
                own = np.nan_to_num(scores[:, slot, cell], nan=-1.0)
                top = int(own.argmax())
                name = cell_name(cell, grid[1]) if grid else str(cell)
                of_cells[name] = {"region": names[top], "overlap": float(own[top])}
            rows.append(
                {
                    "layer": layer,
                    "place": place,
                    "slot": slot,
                    "region": best,
                    "overlap": score,
                    "overlaps": {n: float(v) for n, v in zip(names, means)},
                    "cells": of_cells,
                    "reach": _finite(over_numbers(np.mean, hops[slot])),
                    "farthest": _finite(over_numbers(np.max, hops[slot])),
                    "adaptivity": _finite(over_numbers(np.mean, adaptivity[slot])),
                }
            )
    return rows


def _numbers(row: dict[str, float]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in row.items()}


def mechanisms_data(one: Statistics) -> dict[str, Any]:
    """The same of one model, for JSON."""
    return {
        "self_referral": {str(k): _numbers(v.row()) for k, v in sorted(one.mechanisms.own.items())},
        "experts": {
            f"{place.layer}.{place.sublayer}": _numbers(sums.row())
            for place, sums in sorted(one.mechanisms.experts.items())
        },
        "same_head": {
            region: {"layer": layer} | same._asdict()
            for region, (layer, same) in best_heads(one).items()
        },
        "rounds": None if one.rounds is None else _rounds_data(one.rounds),
    }


def _rounds_data(sums: RoundSums) -> dict[str, Any]:
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(sums).items()}


def reading_data(one: Statistics) -> dict[str, Any]:
    """By layer: shares of slots, and masses of regions by head."""
    found = {}
    for layer, sums in sorted(one.reading.items()):
        shares, masses = sums.slot_shares(), sums.masses()
        found[str(layer)] = {
            "slots": None if shares is None else shares.tolist(),
            "regions": None if masses is None else dict(zip(sums.names, masses.tolist())),
        }
    return found


def plain(groups: Sequence[Group]) -> dict[str, Any]:
    """The same as JSON data; columns are named `edge.n2_weights`."""
    result: dict[str, Any] = {"format": "graph-machine-statistics", "version": 1}
    result["paper"] = {
        kind: {".".join(column): value for column, value in known.items()}
        for kind, known in PAPER.items()
    } | {"budget": PAPER_BUDGET}
    result["conditions"] = [
        {
            "condition": group.condition,
            "kind": group.kind,
            "budget": group.budget,
            "seeds": list(group.seeds),
            "puzzles": group.found[0].puzzles,
            "detector_puzzles": group.found[0].detected,
            **measures(group.found, group.grid, group.box),
            "core": {  # by round, counted from 1
                str(number): measures(
                    [one.core[number] for one in group.found if number in one.core],
                    group.grid,
                    group.box,
                )
                for number in group.core_rounds
            },
        }
        for group in groups
    ]
    return result


def statistics_frame(groups: Sequence[Group]) -> "DataFrame":
    """The means by layer as a pandas DataFrame: a row per model, layer and quantity.

    `quantity` is named `edge.n2_weights`; `round` is that of a recurrent core, 0 for the layers
    before it.

    >>> one = Statistics(by_layer={("edge", "n2_weights"): {0: 0.5}})
    >>> group = Group("gm", "smoke", seeds=(0,), found=(one,))
    >>> statistics_frame([group])[["layer", "quantity", "value"]].values.tolist()
    [[0, 'edge.n2_weights', 0.5]]
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "analysis", "A table of statistics") from None
    rows = [
        (group.condition, group.budget, seed, number, layer, ".".join(column), value)
        for group in groups
        for seed, one in zip(group.seeds, group.found, strict=True)
        for number, part in {0: one, **one.core}.items()
        for column, layers in part.by_layer.items()
        for layer, value in layers.items()
    ]
    names = ["condition", "budget", "seed", "round", "layer", "quantity", "value"]
    return pandas.DataFrame(rows, columns=names)
