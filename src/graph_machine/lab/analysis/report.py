"""The report of `graph-machine stats` as Markdown and as JSON, both from `statistics_frame`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

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

Frame = Any  # a pandas DataFrame; its stubs know little of grouped columns
ABSENT = "–"
PLACE = ["round", "layer"]
SUBLAYERS = {"edge": "referral (n2)", "node": "attention"}
# Columns of the detectors over seeds, of the edges that referral makes.
BY_SEED = ("reach", "farthest", "self mass", "self slots", "box", "row", "column", "cross+box")
BY_SEED += ("adaptivity",)
SEEDS = " Values are in the order of the seeds."


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def section(title: str, note: str, *tables: str) -> str:
    """A part of the report; nothing without tables."""
    return _joined([f"### {title}", note, *tables]) if any(tables) else ""


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def over_seeds(values: Iterable[float]) -> str:
    """The mean, with the lowest and the highest where there are several."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ABSENT
    mean = f"{np.mean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f}–{max(known):.2f})"


def with_deviation(values: Any) -> str:
    """The mean, with the deviation (n - 1) where there are several."""
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def by_seed(values: Iterable[float]) -> str:
    """Every seed's value, so that a seed that failed is to be seen beside the others."""
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


def self_text(name: str, frame: Frame) -> str:
    """Referral to a cell's own edges, by layer."""
    note = (
        "N2 weight and softmax(n2 edge factor) on the source cell itself, mean over heads and "
        f"cells. Self-referring: share of heads and cells with more than {HELD:g} of the n2 weight "
        "on the source. Without self-edge: share of these whose cell has no edge, as referral "
        f"sees it, with more than {HELD:g} of its mass on the cell; and the edge factor's mass on "
        "the source there."
    )
    columns = {f"self.{heading}": heading for heading in SELF}
    return section(f"Self-referral: {name}", note, layer_table(frame, columns))


def heads_text(name: str, frame: Frame, detected: Sequence[int]) -> str:
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
    note = (
        "For each region, the layer whose edges cover it best and the referral head that makes it "
        "there: its overlap, the samples in which it does so better than every other head of its "
        "layer (mean over cells), and how often the best head of a cell is that cell's usual one."
    )
    head = ["region", "head", "overlap", "best head in samples", "a cell's usual head"]
    table = grid(head, rows) if rows else ""
    return section(f"The same head across samples: {name}", note, table)


def slots_text(group: Group, frame: Frame) -> str:
    """How much slots differ and how much of the graph edges shut off, by layer and seed."""
    known = {*frame["quantity"]}
    columns = {
        f"slots.{kind}.{what}": f"{where}: {heading}"
        for kind, where in SUBLAYERS.items()
        for what, heading in (("effective", "effective slots"), ("floor", "at the floor"))
        if f"slots.{kind}.{what}" in known
    }
    note = (
        f"Effective slots: how many different addresses the slots of a {group.places[:-1]} hold, "
        "exp(entropy of their mean - mean entropy), from 1 to k, mean over all. At the floor: "
        "share of targets whose mass in the mixed address is below eps. Attention has no gradient "
        f"to find them again.{SEEDS * (len(group.found) > 1)}"
    )
    return section(f"Slots: {group.title}", note, layer_table(frame, columns, by_seed))


def experts_text(name: str, frame: Frame) -> str:
    """Whether one expert makes the weights, or both, by layer."""
    columns = {
        f"experts.{kind}.{share}": f"{SUBLAYERS[kind]}: {share}" if share == EXPERTS[0] else share
        for kind in SUBLAYERS
        for share in EXPERTS
        if f"experts.{kind}.{share}" in {*frame["quantity"]}
    }
    note = (
        "Share of samples, heads and cells. An expert makes the weights alone where softmax(edge "
        f"factor + node factor) is within {ALIKE:g} (total variation) of its own softmax and not "
        "of the other's; either: of both; both: of neither. The e2 factor of referral is left out."
    )
    return section(f"Experts: {name}", note, layer_table(frame, columns))


def rounds_text(name: str, frame: Frame) -> str:
    """When answers are decided and whether they are undone, of the first seed with a core."""
    mine = first_with(frame, "rounds.")
    if mine.empty:
        return ""
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
    note = (
        f"{samples:,.0f} examples with {cells:,.0f} places to answer. Decided: the answer no "
        "longer changes after this round; undone: right after the round before, wrong after this "
        f"one. Ever undone: {undone:,.0f} places ({100 * undone / cells:.1f}"
        f"%), of which {restored:,.0f} are right again after the last round."
    )
    head = ["round", "decided", "decided so far", "right", "undone", "solved"]
    return section(f"Rounds: {name}", note, grid(head, rows))


def reading_text(name: str, frame: Frame, detected: int) -> str:
    """Edge slots and regions that the core's attention reads, of the first seed with a core."""
    mine = first_with(frame, "reading.")
    if mine.empty:
        return ""
    about = f"The first and the last round, mean over heads, cells and {detected} examples."
    slots = _slots_text(frame[frame["model"] == mine["model"].iloc[0]], mine)
    if slots:
        about += (
            " Slots: the region that an edge of the core fits best, with its overlap, and the "
            "share of e1 weight that attention gives to it."
        )
    regions = _regions_read(mine)
    if regions:
        about += (
            " Regions: attention's mass inside, and the head with the most; even: attention spread "
            "over all places alike."
        )
    return _joined([f"### What the core reads: {name}", about, slots, regions])


def _slots_text(one: Frame, reading: Frame) -> str:
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
    return grid(["slot", *_slots(slots)], [[name, *row] for name, row in rows.items()])


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


def table_text(table: Table, groups: Sequence[Group], frames: Sequence[Frame]) -> str:
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
    return f"### {table.title}\n\n" + grid(head, rows)


def best_regions(one: Frame, place: str) -> dict[tuple[int, int], list[str]]:
    """(round, layer) -> for each slot of one model, the region that fits best and its overlap."""
    start = f"{place}.overlap "
    mine = one[one["quantity"].str.startswith(start)]
    best = mine.loc[mine.groupby([*PLACE, "slot"])["value"].idxmax()]
    words = best["quantity"].str.removeprefix(start) + best["value"].map(" {:.2f}".format)
    return best.assign(words=words).groupby(PLACE)["words"].agg(list).to_dict()


def regions_text(group: Group, frame: Frame) -> str:
    """Layer x slot: the region that fits best and its overlap; reach and adaptivity beside it."""
    one, parts = frame[frame["model"] == 0], []
    for place, title in (
        ("edge:in", "as referral sees them (address-in)"),
        ("edge:out", "as referral makes them (address-out)"),
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
            head = ["layer", *_slots(len(rows[0]) - 4), "reach", "mean", "adaptivity"]
            parts.append(f"**Edges {title}**\n\n" + grid(head, rows))
    if not parts:
        return ""  # no edges, or edges that are never updated
    start = "edge:out.overlap "
    names = [q.removeprefix(start) for q in one["quantity"].unique() if q.startswith(start)]
    built = layer_table(one, {f"edge:out.{name}": name for name in names})
    # Different cells may keep a region in different slots.
    title = "**Regions in any slot** (overlap of each cell's best slot, mean over cells)"
    note = (
        f"Best region of each edge slot, with its overlap (mass inside x coverage), averaged over "
        f"all source {group.places} and {group.found[0].detected} {group.examples} of seed "
        f"{group.seeds[0]}. Reach: hops of the "
        f"input graph at or beyond which 5% of an edge's mass lies, largest and mean over slots "
        f"and {group.places} (edges spread over all of them left out). Adaptivity: share of an "
        f"edge that varies over {group.examples}."
    )
    return section(f"Regions: {group.condition}", note, *parts, f"{title}\n\n{built}")


def _slots(count: int) -> list[str]:
    return [f"e{slot}" for slot in range(count)]


def _shown(value: float, digits: int = 2) -> str:
    return ABSENT if math.isnan(value) else f"{value:.{digits}f}"


def seeds_text(group: Group, frame: Frame) -> str:
    """The detectors by layer over every seed: mean, and the lowest and highest seed."""
    if group.box is None:
        return ""
    many = "the mean over seeds with the lowest and highest" if len(group.found) > 1 else "one seed"
    note = (
        f"Edges as referral makes them, {many}. Reach: mean and largest over slots and cells, in "
        f"hops. Self mass: mean share of an edge on its own cell; self slots: share of cells with "
        f"a slot that has more than {HELD:g} of its mass there. Regions: overlap of each cell's "
        f"best slot, mean over cells."
    )
    table = layer_table(frame, {f"edge:out.{name}": name for name in BY_SEED})
    return section(f"By layer over seeds: {group.title}", note, table)


def labour_text(groups: Sequence[Group], frames: Sequence[Frame]) -> str:
    """Division of labour: geometry and digit shares of the factors, layer by layer."""
    parts = []
    for group, frame in zip(groups, frames, strict=True):
        known = {*frame["quantity"]}
        columns = {
            quantity: f"{where} {factor.removesuffix('_factors').removeprefix('n2_')}: {kind}"
            for factor in LABOUR
            for sublayer, where in (("edge", "referral"), ("node", "attention"))
            for kind in ("geometry", "digit")
            if (quantity := f"labour.{sublayer}.{factor}.{kind}") in known
        }
        if columns:
            table = layer_table(frame, columns)
            parts.append(f"**{group.condition}** ({group.budget})\n\n{table}")
    note = (
        "Share of the variance of softmax(factor) explained by the target's place (geometry) and "
        "by what it holds (its digit, given or inferred), adjusted for chance: the mean over seeds "
        "with the lowest and highest. A dash: the factor is uniform, or there is one sample only."
    )
    return section("Division of labour", note, *parts)


def statistics_markdown(groups: Sequence[Group]) -> str:
    """The whole report of `graph-machine stats`: the four tables, regions, division of labour."""
    count = max(one.puzzles for group in groups for one in group.found)
    words = {(group.places, group.examples) for group in groups}
    places, examples = words.pop() if len(words) == 1 else ("nodes", "examples")
    core = ""
    if any(group.has_core for group in groups):
        core = (
            "Layers are those before a recurrent core; the core has rows of its own, of its first "
            "and its last round. The same head across samples is looked for in layers only. "
        )
    frames: list[Frame] = [statistics_frame([group]) for group in groups]
    both = [*zip(groups, frames)]
    parts = [
        "# Statistics",
        f"Means over layers, heads, source {places} and {count:,} test {examples}. {core}"
        f"The paper's rows are of its own budget ({PAPER_BUDGET}) and stand here for "
        f"comparison, not as ours. "
        f"{ABSENT}: the model has no such thing.",
        *(table_text(table, groups, frames) for table in TABLES),
    ]
    for group, frame in both:
        detected = [one.detected for one in group.found]
        parts += [
            rounds_text(group.title, frame),
            reading_text(group.title, frame, detected[0]),
            self_text(group.title, frame),
            heads_text(group.title, frame, detected),
            experts_text(group.title, frame),
            slots_text(group, frame),
        ]
    parts += [seeds_text(*each) for each in both]
    parts += [regions_text(*each) for each in both]
    return _joined([*parts, labour_text(groups, frames)]) + "\n"


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
