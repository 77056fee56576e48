"""Statistics and detectors as Markdown for people and as plain data for JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_machine.analysis.across_seeds import BY_SEED, over_seeds
from graph_machine.analysis.markdown import ABSENT, grid, over_seeds_text
from graph_machine.analysis.mechanisms import HELD
from graph_machine.analysis.mechanisms_text import mechanisms_text
from graph_machine.analysis.regions import EdgeSums, best_regions
from graph_machine.analysis.statistics import LABOUR, Spread, Statistics, by_place, spread
from graph_machine.analysis.statistics_data import measures
from graph_machine.analysis.tables import PAPER, TABLES, Column, Table

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
    examples: str = "puzzles"  # as the task calls them

    @property
    def places(self) -> str:
        """What nodes are called: those of a board are cells."""
        return "cells" if self.grid is not None and self.grid[0] > 1 else "nodes"

    @property
    def title(self) -> str:
        """For headings."""
        return f"{self.condition} ({self.budget})"

    @property
    def core_rounds(self) -> list[int]:
        """Rounds of a recurrent core that were measured: the first and the last."""
        return sorted({number for one in self.found for number in one.core})

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
        rows += _core_rows(group, columns)
    return f"### {table.title}\n\n" + grid(head, rows)


def _core_rows(group: Group, columns: Sequence[Column]) -> list[list[str]]:
    """The core in its first and its last round; one row where they are the same."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for number in group.core_rounds:
        mine = [one.core[number] for one in group.found if number in one.core]
        values = tuple(_number(spread(mine, column)) for column in columns)
        rows.setdefault(values, [str(len(mine))]).append(str(number))
    told = []
    for values, (seeds, *numbers) in rows.items():
        which = f"round{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
        if any(value != ABSENT for value in values):
            told.append([f"{group.condition}, core in {which}", *values, seeds, group.budget])
    return told


def regions_text(group: Group) -> str:
    """Layer x slot: the region that fits best and its overlap; reach and adaptivity beside it."""
    one = group.found[0]
    if not one.edges:
        return ""
    parts = []
    for place, title in (
        ("edge:in", "as referral sees them (address-in)"),
        ("edge:out", "as referral makes them (address-out)"),
    ):
        rows, slots = [], 0
        for label, sums in _edges(one, place):
            found = best_regions(sums.region_scores(), list(sums.regions))
            slots = len(found)
            hops = sums.mean_reach()
            row = [label, *(f"{name} {score:.2f}" for name, score in found)]
            farthest = ABSENT if np.isnan(hops).all() else f"{np.nanmax(hops):.0f}"
            rows.append([*row, farthest, _mean(hops), _mean(sums.adaptivity())])
        head = ["layer", *(f"e{slot}" for slot in range(slots)), "reach", "mean", "adaptivity"]
        if rows:
            parts.append(f"**Edges {title}**\n\n" + grid(head, rows))
    if not parts:
        return ""  # edges that are never updated
    parts.append(_built_text(one))
    note = (
        f"Best region of each edge slot, with its overlap (mass inside x coverage), averaged over "
        f"all source {group.places} and {one.detected} {group.examples} of seed "
        f"{group.seeds[0]}. Reach: hops of the "
        f"input graph at or beyond which 5% of an edge's mass lies, largest and mean over slots "
        f"and {group.places} (edges spread over all of them left out). Adaptivity: share of an "
        f"edge that varies over {group.examples}."
    )
    return f"### Regions: {group.condition}\n\n{note}\n\n" + "\n\n".join(parts)


def _edges(one: Statistics, place: str) -> list[tuple[str, EdgeSums]]:
    """The detectors of a place, layer by layer, with the labels of their rows."""
    return [
        (label.format(layer), sums)
        for label, [part] in by_place([one])
        for (layer, where), sums in sorted(part.edges.items(), key=lambda item: item[0])
        if where == place
    ]


def _built_text(one: Statistics) -> str:
    """Layer x region: is it there in any slot? Different cells may keep it in different slots."""
    made = _edges(one, "edge:out")
    names = list(made[0][1].regions) if made else []
    rows = [[label, *(f"{value:.2f}" for value in sums.built())] for label, sums in made]
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
        for label, part in by_place(group.found):
            for layer in sorted({layer for found in part for layer, _ in found.labour}):
                row = [label.format(layer)]
                for column in columns:
                    sums = [found.labour.get((layer, column)) for found in part]
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
    count = max(one.puzzles for group in groups for one in group.found)
    words = {(group.places, group.examples) for group in groups}
    places, examples = words.pop() if len(words) == 1 else ("nodes", "examples")
    core = ""
    if any(group.core_rounds for group in groups):
        core = (
            "Layers are those before a recurrent core; the core has rows of its own, of its first "
            "and its last round. The same head across samples is looked for in layers only. "
        )
    parts = [
        "# Statistics",
        f"Means over layers, heads, source {places} and {count:,} test {examples}. {core}"
        f"The paper's rows are of its own budget ({PAPER_BUDGET}) and stand here for "
        f"comparison, not as ours. "
        f"{ABSENT}: the model has no such thing.",
        *(table_text(table, groups) for table in TABLES),
        *(text for group in groups for text in mechanisms_text(group.title, group.found)),
        *(text for group in groups if (text := seeds_text(group))),
        *(text for group in groups if (text := regions_text(group))),
        labour_text(groups),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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
