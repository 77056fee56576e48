"""Statistics and detectors of one place (the layers, or a core in one round) as data for JSON."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graph_machine.analysis.mechanisms_text import mechanisms_data
from graph_machine.analysis.reading_text import reading_data
from graph_machine.analysis.regions import best_regions
from graph_machine.analysis.statistics import Spread, Statistics, spread, spread_by_layer
from graph_machine.analysis.tables import COLUMNS
from graph_machine.records.naming import cell_name, paper_cells

Pair = tuple[int, int]


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


def _spread_data(value: Spread | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"mean": value.mean, "deviation": value.deviation, "seeds": value.count}


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _over(summary: Callable[[np.ndarray], Any], values: np.ndarray) -> float | None:
    """A summary of the values that are numbers; None where none is."""
    known = values[~np.isnan(values)]
    return float(summary(known)) if len(known) else None


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
                    "reach": _over(np.mean, hops[slot]),
                    "farthest": _over(np.max, hops[slot]),
                    "adaptivity": _over(np.mean, adaptivity[slot]),
                }
            )
    return rows
