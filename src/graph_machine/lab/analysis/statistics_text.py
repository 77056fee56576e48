"""The report of `graph-machine stats` as Markdown."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float

from graph_machine.lab.analysis.mechanisms import ALIKE, HELD, ExpertSums, Place, ReadSums, SelfSums
from graph_machine.lab.analysis.regions import EdgeSums, best_regions
from graph_machine.lab.analysis.statistics import (
    LABOUR,
    PAPER,
    PAPER_BUDGET,
    TABLES,
    Column,
    Group,
    Spread,
    Statistics,
    Table,
    by_place,
    spread,
)
from graph_machine.lab.analysis.statistics_data import best_heads, over_numbers

ABSENT = "–"
SUBLAYERS = {"edge": "referral (n2)", "node": "attention"}

# Heading, and its value in one place of one model.
BY_SEED: dict[str, Callable[[EdgeSums], float]] = {
    "reach": lambda sums: over_numbers(np.mean, sums.mean_reach()),
    "farthest": lambda sums: over_numbers(np.max, sums.mean_reach()),
    "self mass": lambda sums: float(sums.self_mass().mean()),
    "self slots": lambda sums: float((sums.self_mass() > HELD).any(axis=0).mean()),
    **{
        name: lambda sums, name=name: float(dict(zip(sums.regions, sums.built()))[name])
        for name in ("box", "row", "column", "cross+box")
    },
    "adaptivity": lambda sums: over_numbers(np.mean, sums.adaptivity()),
}


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def section(title: str, note: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A part of the report with one table; nothing without rows."""
    return f"### {title}\n\n{note}\n\n{grid(head, rows)}" if rows else ""


def over_seeds_text(values: Iterable[float]) -> str:
    """The mean, with the lowest and the highest where there are several."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ABSENT
    mean = f"{np.mean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f}–{max(known):.2f})"


def layer_rows(
    found: Sequence[Statistics],
    layers: Callable[[Statistics], Iterable[int]],
    cells: Callable[[int, list[Statistics]], list[str]],
) -> list[list[str]]:
    """A row per layer, and per layer of the core in a round; without cells there is no row."""
    return [
        [label.format(layer), *row]
        for label, part in by_place(found)
        for layer in sorted({layer for one in part for layer in layers(one)})
        if (row := cells(layer, part))
    ]


# Mechanisms.


def self_text(name: str, found: Sequence[Statistics]) -> str:
    """Referral to a cell's own edges, by layer."""
    heads = SelfSums.NAMES

    def cells(layer: int, part: list[Statistics]) -> list[str]:
        rows = [s.row() for one in part if (s := one.mechanisms.own.get(layer))]
        return [over_seeds_text(row[head] for row in rows) for head in heads]

    note = (
        "N2 weight and softmax(n2 edge factor) on the source cell itself, mean over heads and "
        f"cells. Self-referring: share of heads and cells with more than {HELD:g} of the n2 weight "
        "on the source. Without self-edge: share of these whose cell has no edge, as referral "
        f"sees it, with more than {HELD:g} of its mass on the cell; and the edge factor's mass on "
        "the source there."
    )
    rows = layer_rows(found, lambda one: one.mechanisms.own, cells)
    return section(f"Self-referral: {name}", note, ["layer", *heads], rows)


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
    note = (
        "For each region, the layer whose edges cover it best and the referral head that makes it "
        "there: its overlap, the samples in which it does so better than every other head of its "
        "layer (mean over cells), and how often the best head of a cell is that cell's usual one."
    )
    head = ["region", "head", "overlap", "best head in samples", "a cell's usual head"]
    return section(f"The same head across samples: {name}", note, head, rows)


def experts_text(name: str, found: Sequence[Statistics]) -> str:
    """Whether one expert makes the weights, or both, by layer."""
    places = {p for _, part in by_place(found) for one in part for p in one.mechanisms.experts}
    kinds = sorted({place.sublayer for place in places})
    shares = ExpertSums.NAMES

    def cells(layer: int, part: list[Statistics]) -> list[str]:
        sums = [[one.mechanisms.experts.get(Place(layer, k)) for one in part] for k in kinds]
        rows = [[s.row() for s in mine if s is not None] for mine in sums]
        return [over_seeds_text(row[share] for row in mine) for mine in rows for share in shares]

    note = (
        "Share of samples, heads and cells. An expert makes the weights alone where softmax(edge "
        f"factor + node factor) is within {ALIKE:g} (total variation) of its own softmax and not "
        "of the other's; either: of both; both: of neither. The e2 factor of referral is left out."
    )
    heads = [f"{SUBLAYERS[k]}: {s}" if s == shares[0] else s for k in kinds for s in shares]
    rows = layer_rows(found, lambda one: [p.layer for p in one.mechanisms.experts], cells)
    return section(f"Experts: {name}", note, ["layer", *heads], rows)


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
    return section(f"Rounds: {name}", note, head, rows)


def reading_text(name: str, found: Sequence[Statistics]) -> str:
    """Edge slots and regions that the core's attention reads, of the first seed with a core."""
    one = next((one for one in found if any(part.reading for part in one.core.values())), None)
    if one is None:
        return ""
    about = f"The first and the last round, mean over heads, cells and {one.detected} examples."
    slots, regions = _slots_text(one), _regions_text(one)
    if slots:
        about += (
            " Slots: the region that an edge of the core fits best, with its overlap, and the "
            "share of e1 weight that attention gives to it."
        )
    if regions:
        about += (
            " Regions: attention's mass inside, and the head with the most; even: attention spread "
            "over all places alike."
        )
    return _joined([f"### What the core reads: {name}", about, slots, regions])


def _slots_text(one: Statistics) -> str:
    rows: dict[str, list[str]] = {}
    for layer in sorted({layer for part in one.core.values() for layer in part.reading}):
        for number, part in one.core.items():
            sums = part.edges.get((layer, "node:in"))
            if sums is not None:
                words = _best(sums)
                # Edges that stay are listed once.
                if rows.setdefault(f"core l{layer}: edges", words) != words:
                    rows[f"core l{layer}: edges, round {number}"] = words
        for number, part in one.core.items():
            shares = part.reading[layer].slot_shares()
            if shares is not None:
                rows[f"core l{layer}: read in round {number}"] = [f"{v:.2f}" for v in shares]
    if not rows:
        return ""
    slots = len(next(iter(rows.values())))
    return grid(["slot", *_slots(slots)], [[name, *row] for name, row in rows.items()])


def _regions_text(one: Statistics) -> str:
    rows: list[list[str]] = []
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
    return grid(["attention inside", *last.names], rows)


def _most(heads: Float[np.ndarray, "head"]) -> str:
    """The mean over heads, and the head with the most."""
    return f"{heads.mean():.2f} (a{heads.argmax()} {heads.max():.2f})"


def mechanisms_text(name: str, found: Sequence[Statistics]) -> list[str]:
    """The parts that these models have."""
    parts = (rounds_text, reading_text, self_text, heads_text, experts_text)
    return [text for part in parts if (text := part(name, found))]


# The paper's tables, regions and the division of labour.


def over_seeds(found: Sequence[Statistics]) -> list[list[str]]:
    """One row per layer, as BY_SEED says, of the edges that referral makes; empty without edges."""

    def cells(layer: int, part: list[Statistics]) -> list[str]:
        mine = [s for one in part if (s := one.edges.get((layer, "edge:out"))) is not None]
        if not mine or "box" not in mine[0].regions:
            return []
        return [over_seeds_text(value(sums) for sums in mine) for value in BY_SEED.values()]

    return layer_rows(found, lambda one: [layer for layer, _ in one.edges], cells)


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
    lines = []
    for values, (seeds, *numbers) in rows.items():
        which = f"round{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
        if any(value != ABSENT for value in values):
            lines.append([f"{group.condition}, core in {which}", *values, seeds, group.budget])
    return lines


def regions_text(group: Group) -> str:
    """Layer x slot: the region that fits best and its overlap; reach and adaptivity beside it."""
    one = group.found[0]
    parts = []
    for place, title in (
        ("edge:in", "as referral sees them (address-in)"),
        ("edge:out", "as referral makes them (address-out)"),
    ):
        rows, slots = [], 0
        for label, sums in _edges(one, place):
            found, hops = _best(sums), sums.mean_reach()
            slots = len(found)
            reached = [_shown(np.max, hops, 0), _shown(np.mean, hops)]
            rows.append([label, *found, *reached, _shown(np.mean, sums.adaptivity())])
        if rows:
            head = ["layer", *_slots(slots), "reach", "mean", "adaptivity"]
            parts.append(f"**Edges {title}**\n\n" + grid(head, rows))
    if not parts:
        return ""  # no edges, or edges that are never updated
    made = _edges(one, "edge:out")
    names = list(made[0][1].regions) if made else []
    rows = [[label, *(f"{value:.2f}" for value in sums.built())] for label, sums in made]
    # Different cells may keep a region in different slots.
    title = "**Regions in any slot** (overlap of each cell's best slot, mean over cells)"
    parts.append(f"{title}\n\n" + grid(["layer", *names], rows))
    note = (
        f"Best region of each edge slot, with its overlap (mass inside x coverage), averaged over "
        f"all source {group.places} and {one.detected} {group.examples} of seed "
        f"{group.seeds[0]}. Reach: hops of the "
        f"input graph at or beyond which 5% of an edge's mass lies, largest and mean over slots "
        f"and {group.places} (edges spread over all of them left out). Adaptivity: share of an "
        f"edge that varies over {group.examples}."
    )
    return _joined([f"### Regions: {group.condition}", note, *parts])


def _edges(one: Statistics, place: str) -> list[tuple[str, EdgeSums]]:
    """The detectors of a place, layer by layer, with the labels of their rows."""
    return [
        (label.format(layer), sums)
        for label, [part] in by_place([one])
        for (layer, where), sums in sorted(part.edges.items(), key=lambda item: item[0])
        if where == place
    ]


def _best(sums: EdgeSums) -> list[str]:
    """For each slot, the region that fits best and its overlap."""
    found = best_regions(sums.region_scores(), list(sums.regions))
    return [f"{region} {overlap:.2f}" for region, overlap in found]


def _slots(count: int) -> list[str]:
    return [f"e{slot}" for slot in range(count)]


def _shown(summary: Callable[[np.ndarray], float], values: np.ndarray, digits: int = 2) -> str:
    value = over_numbers(summary, values)
    return ABSENT if math.isnan(value) else f"{value:.{digits}f}"


def seeds_text(group: Group) -> str:
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
    head = ["layer", *BY_SEED]
    return section(f"By layer over seeds: {group.title}", note, head, over_seeds(group.found))


def labour_text(groups: Sequence[Group]) -> str:
    """Division of labour: geometry and digit shares of the factors, layer by layer."""
    parts = []
    for group in groups:
        columns = {column for _, column in group.found[0].labour}
        if columns:
            head, rows = _labour(group, sorted(columns, key=lambda c: LABOUR.index(c[1])))
            parts.append(f"**{group.condition}** ({group.budget})\n\n" + grid(head, rows))
    if not parts:
        return ""
    note = (
        "Share of the variance of softmax(factor) explained by the target's place (geometry) and "
        "by what it holds (its digit, given or inferred), adjusted for chance: the mean over seeds "
        "with the lowest and highest. A dash: the factor is uniform, or there is one sample only."
    )
    return _joined(["### Division of labour", note, *parts])


def _labour(group: Group, columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    kinds = ("geometry", "digit")

    def cells(layer: int, part: list[Statistics]) -> list[str]:
        sums = [[one.labour.get((layer, column)) for one in part] for column in columns]
        shares = [[each.shares() for each in mine if each is not None] for mine in sums]
        return [over_seeds_text(one[kind] for one in mine) for mine in shares for kind in kinds]

    rows = layer_rows(group.found, lambda one: [layer for layer, _ in one.labour], cells)
    return ["layer", *(f"{_words(c)}: {kind}" for c in columns for kind in kinds)], rows


def _words(column: Column) -> str:
    place = "referral" if column[0] == "edge" else "attention"
    name = column[1].removesuffix("_factors").removeprefix("n2_")
    return f"{place} {name}"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


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
        *(seeds_text(group) for group in groups),
        *(regions_text(group) for group in groups),
        labour_text(groups),
    ]
    return _joined(parts) + "\n"
