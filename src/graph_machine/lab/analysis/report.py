"""The report of `graph-machine stats` as Markdown and as JSON, both from `statistics_frame`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.files import fill
from graph_machine.lab.analysis.detectors import ALIKE, EXPERTS, HELD, MADE, SELF
from graph_machine.lab.analysis.statistics import (
    LABOUR,
    PAPER,
    PAPER_BUDGET,
    TABLES,
    Group,
    Table,
    statistics_frame,
)

TEMPLATE = Path(__file__).parent / "statistics.md.jinja"
Frame = Any  # a pandas DataFrame; its stubs know little of grouped columns
ABSENT = "–"
PLACE = ["round", "layer"]
SUBLAYERS = {"edge": "referral (n2)", "node": "attention"}
# Columns of the detectors over seeds, of the edges that referral makes.
BY_SEED = ("reach", "farthest", "self mass", "self slots", "box", "row", "column", "cross+box")
BY_SEED += ("adaptivity",)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def over_seeds(values: Iterable[float]) -> str:
    """The mean; of several values also the lowest and the highest."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ABSENT
    mean = f"{np.mean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f}–{max(known):.2f})"


def with_deviation(values: Any) -> str:
    """The mean; of several values also the deviation (n - 1)."""
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def by_seed(values: Iterable[float]) -> str:
    """Every seed's value, so that a failed seed is visible."""
    return ", ".join(f"{value:.2f}" for value in values)


def layer_table(
    frame: Frame,
    columns: Mapping[str, str],
    show: Callable[[Any], str] = over_seeds,
    head: str = "layer",
) -> str:
    """A row per layer, and per layer of the core in a round; `columns` are quantity -> heading."""
    mine = frame[frame["quantity"].isin(columns)]
    if mine.empty:
        return ""
    cells = mine.groupby([*PLACE, "quantity"])["value"].agg(show).unstack()
    cells = cells.reindex(columns=[*columns], fill_value=ABSENT).fillna(ABSENT)
    return grid(
        [head, *columns.values()], ([label(*place), *row] for place, *row in cells.itertuples())
    )


def label(number: int, layer: int) -> str:
    """Of a layer, or of a layer of the core in a round."""
    return f"core l{layer}, round {number}" if number else f"l{layer}"


def first_with(frame: Frame, start: str) -> Frame:
    """The values of the first model that has such quantities."""
    mine = frame[frame["quantity"].str.startswith(start)]
    return mine[mine["model"] == mine["model"].min()]


# Mechanisms.


def heads_table(frame: Frame, detected: Sequence[int]) -> str:
    """Whether the same head makes a region in every sample; a row per region and seed."""
    made = frame[(frame["round"] == 0) & frame["quantity"].str.startswith("edge:out.")]
    rows = []
    for model, mine in made[made["slot"] < 0].groupby("model"):
        layers = mine.pivot(index="layer", columns="quantity", values="value")
        for region in (each for each in MADE if f"edge:out.{each}" in layers):
            layer = layers[f"edge:out.{region}"].idxmax()
            parts = ("", " overlap", " samples", " cells")
            head, overlap, samples, cells = (
                layers.loc[layer, f"edge:out.{region} head{part}"] for part in parts
            )
            rows.append([region, f"l{layer}r{head:.0f}", f"{overlap:.2f}"])
            rows[-1] += [f"{samples:.0f} of {detected[int(model)]}", f"{100 * cells:.0f}%"]
    head = ["region", "head", "overlap", "best head in samples", "a cell's usual head"]
    return grid(head, rows) if rows else ""


def rounds_facts(frame: Frame) -> dict[str, Any]:
    """When answers are decided and whether they are undone, of the first seed with a core."""
    mine = first_with(frame, "rounds.")
    if mine.empty:
        return {}
    by_round = mine.pivot(index="round", columns="quantity", values="value")
    by_round.columns = by_round.columns.str.removeprefix("rounds.")
    samples, cells, undone, restored = by_round.loc[
        0, ["samples", "cells", "ever_undone", "restored"]
    ]
    by_round = by_round.drop(index=0)
    rows = [
        [
            str(number),
            f"{one.decided:,.0f}",
            f"{100 * so_far / cells:.1f}%",
            f"{100 * one.right / cells:.1f}%",
            f"{one.lost:,.0f}",
            f"{100 * one.solved / samples:.1f}%",
        ]
        for (number, one), so_far in zip(by_round.iterrows(), by_round["decided"].cumsum())
    ]
    head = ["round", "decided", "decided so far", "right", "undone", "solved"]
    whole = {"samples": samples, "cells": cells, "undone": undone, "restored": restored}
    return whole | {"table": grid(head, rows)}


def reading_tables(frame: Frame) -> dict[str, str]:
    """Edge slots and regions that the core's attention reads, of the first seed with a core."""
    mine = first_with(frame, "reading.")
    if mine.empty:
        return {}
    one = frame[frame["model"] == mine["model"].iloc[0]]
    return {"slots": _slots_read(one, mine), "regions": _regions_read(mine)}


def _slots_read(one: Frame, reading: Frame) -> str:
    edges, read = best_regions(one, "node:in"), reading[reading["quantity"] == "reading.slots"]
    rows: dict[str, list[str]] = {}
    for layer in sorted({*reading["layer"]}):
        for (number, at), words in edges.items():
            # Edges that stay are listed once.
            if number and at == layer and rows.setdefault(f"core l{layer}: edges", words) != words:
                rows[f"core l{layer}: edges, round {number}"] = words
        for number, mine in read[read["layer"] == layer].groupby("round"):
            rows[f"core l{layer}: read in round {number}"] = [f"{v:.2f}" for v in mine["value"]]
    if not rows:
        return ""
    slots = len(next(iter(rows.values())))
    return grid(["slot", *_slot_names(slots)], [[name, *row] for name, row in rows.items()])


def _regions_read(reading: Frame) -> str:
    """The mean over heads, and the head with the most."""

    def most(heads: Any) -> str:
        return f"{np.mean(heads):.2f} (a{np.argmax(heads)} {np.max(heads):.2f})"

    start = "reading.even "
    even = reading[reading["quantity"].str.startswith(start)]
    shares = dict(zip(even["quantity"].str.removeprefix(start), even["value"].map("{:.2f}".format)))
    columns = {f"reading.{name}": name for name in shares}
    table = layer_table(reading, columns, most, "attention inside")
    return f"{table}\n| {' | '.join(['even', *shares.values()])} |" if table else ""


# The paper's tables, regions and the division of labour.


def paper_table(table: Table, groups: Sequence[Group], frames: Sequence[Frame]) -> str:
    """One of the paper's tables: the paper's rows first, then ours, each with its budget."""
    columns = [column.quantity for column in table.columns]
    head = ["condition", *(column.heading for column in table.columns), "seeds", "budget"]
    rows = []
    for kind in dict.fromkeys(group.kind for group in groups):
        known = PAPER[kind]
        if any(column in known for column in columns):
            values = [f"{known[c]:.3f}" if c in known else ABSENT for c in columns]
            rows.append([f"*{kind} (paper)*", *values, "10", f"*{PAPER_BUDGET}*"])
    for group, frame in zip(groups, frames, strict=True):
        mine = frame[frame["quantity"].isin(columns)]
        means = mine.groupby(["round", "quantity", "model"])["value"].mean()  # over layers
        cells = means.groupby(["round", "quantity"]).agg(with_deviation).unstack()
        cells = cells.reindex(columns=columns, fill_value=ABSENT).fillna(ABSENT)
        ours: dict[tuple[str, ...], list[str]] = {}  # rounds of the core by their values
        for number, *values in cells.itertuples():
            ours.setdefault((str(bool(number)), *values), []).append(str(number))
        for (core, *values), numbers in ours.items():
            which = f", core in round{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
            name = group.condition + (which if core == "True" else "")
            rows.append([name, *values, str(len(group.found)), group.budget])
    return grid(head, rows)


def best_regions(one: Frame, place: str) -> dict[tuple[int, int], list[str]]:
    """(round, layer) -> for each slot of one model, the region that fits best and its overlap."""
    start = f"{place}.overlap "
    mine = one[one["quantity"].str.startswith(start)]
    best = mine.loc[mine.groupby([*PLACE, "slot"])["value"].idxmax()]
    words = best["quantity"].str.removeprefix(start) + best["value"].map(" {:.2f}".format)
    return best.assign(words=words).groupby(PLACE)["words"].agg(list).to_dict()


def region_tables(one: Frame) -> dict[str, str]:
    """Layer x slot: the region that fits best and its overlap; reach and adaptivity beside it."""
    found = {}
    for place, title in (
        ("edge:in", "Edges as referral sees them (address-in)"),
        ("edge:out", "Edges as referral makes them (address-out)"),
    ):
        rows = []
        for at, words in best_regions(one, place).items():
            here = one[(one["round"] == at[0]) & (one["layer"] == at[1]) & (one["slot"] < 0)]
            values = dict(zip(here["quantity"], here["value"]))
            far, mean, varies = (
                values[f"{place}.{name}"] for name in ("farthest", "reach", "adaptivity")
            )
            rows.append([label(*at), *words, _shown(far, 0), _shown(mean), _shown(varies)])
        if rows:
            head = ["layer", *_slot_names(len(rows[0]) - 4), "reach", "mean", "adaptivity"]
            found[title] = grid(head, rows)
    return found  # none: no edges, or edges that are never updated


def _slot_names(count: int) -> list[str]:
    return [f"e{slot}" for slot in range(count)]


def _shown(value: float, digits: int = 2) -> str:
    return ABSENT if math.isnan(value) else f"{value:.{digits}f}"


def group_tables(group: Group, frame: Frame) -> dict[str, Any]:
    """The tables of one group; a table without rows is an empty string."""
    known, one = [*frame["quantity"].unique()], frame[frame["model"] == 0]
    experts = {
        f"experts.{kind}.{share}": f"{SUBLAYERS[kind]}: {share}" if share == EXPERTS[0] else share
        for kind in SUBLAYERS
        for share in EXPERTS
        if f"experts.{kind}.{share}" in known
    }
    slots = {
        f"slots.{kind}.{what}": f"{where}: {heading}"
        for kind, where in SUBLAYERS.items()
        for what, heading in (("effective", "effective slots"), ("floor", "at the floor"))
        if f"slots.{kind}.{what}" in known
    }
    labour = {
        quantity: f"{where} {factor.removesuffix('_factors').removeprefix('n2_')}: {kind}"
        for factor in LABOUR
        for sublayer, where in (("edge", "referral"), ("node", "attention"))
        for kind in ("geometry", "digit")
        if (quantity := f"labour.{sublayer}.{factor}.{kind}") in known
    }
    start = "edge:out.overlap "  # of each slot; different cells may keep a region in different ones
    regions = [q.removeprefix(start) for q in one["quantity"].unique() if q.startswith(start)]
    seeds = {f"edge:out.{name}": name for name in BY_SEED} if group.box is not None else {}
    return {
        "group": group,
        "rounds": rounds_facts(frame),
        "reading": reading_tables(frame),
        "self": layer_table(frame, {f"self.{heading}": heading for heading in SELF}),
        "heads": heads_table(frame, [found.detected for found in group.found]),
        "experts": layer_table(frame, experts),
        "slots": layer_table(frame, slots, by_seed),
        "seeds": layer_table(frame, seeds),
        "regions": region_tables(one),
        "any_slot": layer_table(one, {f"edge:out.{name}": name for name in regions}),
        "labour": layer_table(frame, labour),
    }


def statistics_markdown(groups: Sequence[Group]) -> str:
    """The whole report of `graph-machine stats`: the four tables, regions, division of labour."""
    words = {(group.places, group.examples) for group in groups}
    places, examples = words.pop() if len(words) == 1 else ("nodes", "examples")
    frames: list[Frame] = [statistics_frame([group]) for group in groups]
    return fill(
        TEMPLATE,
        places=places,
        examples=examples,
        count=max(one.puzzles for group in groups for one in group.found),
        has_core=any(group.has_core for group in groups),
        paper_budget=PAPER_BUDGET,
        tables=[(table.title, paper_table(table, groups, frames)) for table in TABLES],
        groups=[group_tables(*each) for each in zip(groups, frames, strict=True)],
        held=f"{HELD:g}",
        alike=f"{ALIKE:g}",
    )


def plain(groups: Sequence[Group]) -> dict[str, Any]:
    """The same as JSON data: for each condition, what was measured as columns and rows."""

    def values(group: Group) -> dict[str, Any]:
        frame: Frame = statistics_frame([group]).drop(columns=["condition", "budget"])
        frame = frame[(frame["slot"] < 0) | (frame["model"] == 0)]  # single slots: of the first
        table = frame.astype(object).where(frame.notna(), None).to_dict("split", index=False)
        return {"columns": table["columns"], "rows": table["data"]}

    return {
        "format": "graph-machine-statistics",
        "version": 2,
        "paper": {**PAPER, "budget": PAPER_BUDGET},
        "conditions": [
            {
                "condition": group.condition,
                "kind": group.kind,
                "budget": group.budget,
                "seeds": list(group.seeds),
                "puzzles": group.found[0].puzzles,
                "detector_puzzles": group.found[0].detected,
                **values(group),
            }
            for group in groups
        ],
    }
