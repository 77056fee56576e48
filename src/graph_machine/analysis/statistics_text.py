"""Statistics and detectors as Markdown for people and as plain data for JSON."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_machine.analysis.across_seeds import BY_SEED, over_seeds
from graph_machine.analysis.markdown import ABSENT, grid, over_seeds_text
from graph_machine.analysis.mechanisms import HELD
from graph_machine.analysis.mechanisms_text import mechanisms_data, mechanisms_text
from graph_machine.analysis.regions import best_regions
from graph_machine.analysis.statistics import (
    COLUMNS,
    LABOUR,
    PAPER,
    TABLES,
    Column,
    Spread,
    Statistics,
    Table,
    spread,
    spread_by_layer,
)
from graph_machine.records.naming import cell_name, paper_cells

PAPER_BUDGET = "9x9 board, 32 layers, 100,000 steps of 64, ten seeds"
PLACES = {"edge:in": "r", "node:in": "a", "edge:out": "out"}


@dataclass(frozen=True)
class Group:
    """The checkpoints of one condition (its seeds), and the budget that they share.

    >>> Group("gm", "4x4 board, 6 layers", seeds=(0,), found=()).condition
    'gm'
    """

    condition: str
    budget: str
    seeds: tuple[int, ...]
    found: tuple[Statistics, ...]
    grid: tuple[int, int] | None = None
    box: tuple[int, int] | None = None

    @property
    def title(self) -> str:
        """For headings."""
        return f"{self.condition} ({self.budget})"

    @property
    def kind(self) -> str:
        """The paper's row that it is put beside."""
        has_edges = any("address_ins" in column for one in self.found for column in one.by_layer)
        return "GM" if has_edges else "Transformer"


def _number(value: Spread | None) -> str:
    if value is None:
        return ABSENT
    deviation = "" if value.deviation is None else f" ± {value.deviation:.3f}"
    return f"{value.mean:.3f}{deviation}"


def table_text(table: Table, groups: Sequence[Group]) -> str:
    """One of the paper's tables: the paper's rows first, then ours, each with its budget."""
    columns = [column for _, column in table.columns]
    head = ["condition", *(heading for heading, _ in table.columns), "seeds", "budget"]
    rows = []
    for kind in dict.fromkeys(group.kind for group in groups):
        known = PAPER[kind]
        if any(column in known for column in columns):
            values = [f"{known[c]:.3f}" if c in known else ABSENT for c in columns]
            rows.append([f"*{kind} (paper)*", *values, "10", f"*{PAPER_BUDGET}*"])
    for group in groups:
        values = [_number(spread(group.found, column)) for column in columns]
        if any(value != ABSENT for value in values):
            rows.append([group.condition, *values, str(len(group.found)), group.budget])
    return f"### {table.title}\n\n" + grid(head, rows)


def regions_text(group: Group) -> str:
    """Layer x slot: the region that fits best and its overlap; reach and adaptivity beside it."""
    one = group.found[0]
    if not one.edges:
        return ""
    layers = sorted({layer for layer, _ in one.edges})
    parts = []
    for place, title in (
        ("edge:in", "as referral sees them (address-in)"),
        ("edge:out", "as referral makes them (address-out)"),
    ):
        rows, slots = [], 0
        for layer in layers:
            sums = one.edges.get((layer, place))
            if sums is None:
                continue
            found = best_regions(sums.region_scores(), list(sums.regions))
            slots = len(found)
            hops = sums.mean_reach()
            row = [f"l{layer}", *(f"{name} {score:.2f}" for name, score in found)]
            farthest = ABSENT if np.isnan(hops).all() else f"{np.nanmax(hops):.0f}"
            rows.append([*row, farthest, _mean(hops), _mean(sums.adaptivity())])
        head = ["layer", *(f"e{slot}" for slot in range(slots)), "reach", "mean", "adaptivity"]
        parts.append(f"**Edges {title}**\n\n" + grid(head, rows))
    parts.append(_built_text(one, layers))
    note = (
        f"Best region of each edge slot, with its overlap (mass inside x coverage), averaged over "
        f"all source cells and {one.detected} puzzles of seed {group.seeds[0]}. Reach: hops of the "
        f"input graph at or beyond which 5% of an edge's mass lies, largest and mean over slots "
        f"and cells (edges spread over the whole board left out). Adaptivity: share of an edge "
        f"that varies over puzzles."
    )
    return f"### Regions: {group.condition}\n\n{note}\n\n" + "\n\n".join(parts)


def _built_text(one: Statistics, layers: Sequence[int]) -> str:
    """Layer x region: is it there in any slot? Different cells may keep it in different slots."""
    rows = []
    names: list[str] = []
    for layer in layers:
        sums = one.edges.get((layer, "edge:out"))
        if sums is not None:
            names = list(sums.regions)
            rows.append([f"l{layer}", *(f"{value:.2f}" for value in sums.built())])
    title = "**Regions in any slot** (overlap of each cell's best slot, mean over cells)"
    return f"{title}\n\n" + grid(["layer", *names], rows)


def seeds_text(group: Group) -> str:
    """The detectors by layer over every seed: mean, and the lowest and highest seed."""
    rows = over_seeds(group.found)
    if not rows or group.box is None:
        return ""
    many = "the mean over seeds with the lowest and highest" if len(group.found) > 1 else "one seed"
    note = (
        f"Edges as referral makes them, {many}. Reach: mean and largest over slots and cells, in "
        f"hops. Self mass: mean share of an edge on its own cell; self slots: share of cells with "
        f"a slot that has more than {HELD:g} of its mass there. Regions: overlap of each cell's "
        f"best slot, mean over cells."
    )
    title = f"### By layer over seeds: {group.title}"
    return f"{title}\n\n{note}\n\n" + grid(["layer", *BY_SEED], rows)


def _mean(values: np.ndarray) -> str:
    return ABSENT if np.isnan(values).all() else f"{np.nanmean(values):.2f}"


def labour_text(groups: Sequence[Group]) -> str:
    """Division of labour: geometry and digit shares of the factors, layer by layer."""
    parts = []
    for group in groups:
        one = group.found[0]
        columns = sorted({c for _, c in one.labour}, key=lambda c: LABOUR.index(c[1]))
        if not columns:
            continue
        rows = []
        for layer in sorted({layer for layer, _ in one.labour}):
            row = [f"l{layer}"]
            for column in columns:
                sums = [found.labour.get((layer, column)) for found in group.found]
                shares = [each.shares() for each in sums if each is not None]
                row += [
                    over_seeds_text([share.get(name, math.nan) for share in shares])
                    for name in ("geometry", "digit")
                ]
            rows.append(row)
        head = ["layer"]
        head += [f"{_words(c)}: {what}" for c in columns for what in ("geometry", "digit")]
        parts.append(f"**{group.condition}** ({group.budget})\n\n" + grid(head, rows))
    if not parts:
        return ""
    note = (
        "Share of the variance of softmax(factor) explained by the target's place (geometry) and "
        "by what it holds (its digit, given or inferred), adjusted for chance: the mean over seeds "
        "with the lowest and highest. A dash: the factor is uniform, or there is one sample only."
    )
    return f"### Division of labour\n\n{note}\n\n" + "\n\n".join(parts)


def _words(column: Column) -> str:
    place = "referral" if column[0] == "edge" else "attention"
    name = column[1].removesuffix("_factors").removeprefix("n2_")
    return f"{place} {name}"


def statistics_markdown(groups: Sequence[Group]) -> str:
    """The whole report of `graph-machine stats`: the four tables, regions, division of labour."""
    puzzles = max(one.puzzles for group in groups for one in group.found)
    parts = [
        "# Statistics",
        f"Means over layers, heads, source cells and {puzzles:,} test puzzles. The paper's rows "
        f"are of its own budget ({PAPER_BUDGET}) and stand here for comparison, not as ours. "
        f"{ABSENT}: the model has no such thing.",
        *(table_text(table, groups) for table in TABLES),
        *(text for group in groups for text in mechanisms_text(group.title, group.found)),
        *(text for group in groups if (text := seeds_text(group))),
        *(text for group in groups if (text := regions_text(group))),
        labour_text(groups),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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


def _edges_data(group: Group) -> list[dict[str, Any]]:
    """One entry per layer, place and slot."""
    rows = []
    cells = () if group.grid is None else paper_cells(*group.grid, group.box)
    for (layer, place), sums in sorted(group.found[0].edges.items()):
        scores, names = sums.region_scores(), list(sums.regions)
        adaptivity, hops = sums.adaptivity(), sums.mean_reach()
        for slot, (best, score) in enumerate(best_regions(scores, names)):
            means = np.nanmean(scores[:, slot], axis=-1)
            of_cells = {}
            for cell in cells:
                own = np.nan_to_num(scores[:, slot, cell], nan=-1.0)
                top = int(own.argmax())
                name = cell_name(cell, group.grid[1]) if group.grid else str(cell)
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
            "means": {
                ".".join(column): _spread_data(value)
                for column in COLUMNS
                if (value := spread(group.found, column)) is not None
            },
            "by_layer": {
                ".".join(column): {str(k): _spread_data(v) for k, v in layers.items()}
                for column in COLUMNS
                if (layers := spread_by_layer(group.found, column))
            },
            "detector_puzzles": group.found[0].detected,
            "edges": _edges_data(group),
            "built": [
                {"layer": layer, "place": place}
                | dict(zip(sums.regions, sums.built().tolist(), strict=True))
                for (layer, place), sums in sorted(group.found[0].edges.items())
            ],
            "labour": [
                {"layer": layer, "factor": ".".join(column)}
                | {name: _finite(share) for name, share in sums.shares().items()}
                for (layer, column), sums in sorted(group.found[0].labour.items())
            ],
            "mechanisms": mechanisms_data(group.found[0]),
        }
        for group in groups
    ]
    return result
