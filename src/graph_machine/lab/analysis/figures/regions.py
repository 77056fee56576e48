"""Figures of how edges are built: regions, middle cells, the 1-2-4 expansion, composition."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool

from graph_machine.errors import ConfigError, DataError, did_you_mean
from graph_machine.lab.analysis.figures.board import SCALE_NOTE, Geometry, Panel, panels
from graph_machine.lab.analysis.figures.edges_to_show import (
    Choice,
    Source,
    default_cells,
    heads_of,
    sublayers_with,
)
from graph_machine.lab.analysis.regions import make_regions, overlaps
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What one referral head computes, in its order.
STAGES = {
    "n2_edge_factors": "n2 edge factor",
    "n2_node_factors": "n2 node factor",
    "e2_factors": "e2 factor",
    "n2_weights": "n2 weights",
    "address_outs": "new address",
}
WORTH_SHOWING = 0.01  # of the new edge's mass
COLLECTED = 3  # edges that are shown of those that a head collected
# A region counts as built in the first layer that comes this close to the best overlap of all.
NEARLY = 0.95


class Chosen(NamedTuple):
    """The referral head of a region, a few words on it, and the edge, if it was named by that."""

    head: Shorthand
    words: str
    edge: Shorthand | None = None

    def as_edge(self, at: Source) -> list[Panel | None]:
        """That edge as it comes in, after sharpening."""
        edge = self.edge
        return [] if edge is None else [Panel(f"{edge} address-in", at.look(edge), at.cell)]


def known_regions(record: Record, row: int | None = None) -> dict[str, Bool[np.ndarray, "n n"]]:
    """Region name -> targets of each source; the `row`th sample's own, where each has its own."""
    known = make_regions(record.grid or (1, record.nodes), record.box)
    if record.regions is not None:
        labels = record.regions[0 if row is None else row]
        own = labels[:, None] == labels[None]
        known |= {"region": own, "cross+region": known["cross"] | own}
    return known


def find_regions(record: Record, names: Sequence[str]) -> dict[str, tuple[Shorthand, float]]:
    """The referral head that builds each region, and its overlap over all recorded sources and
    samples."""
    if record.grid is None:
        raise DataError("Regions are defined on grids; the graph of this recording is not a grid.")
    # One stack of masks, or one for every sample.
    rows = [None] if record.regions is None else range(len(record.samples))
    each_known = [known_regions(record, row) for row in rows]
    masks = [np.stack([known[name][record.sources] for name in names]) for known in each_known]
    heads: list[Shorthand] = []
    scores: list[np.ndarray] = []  # region, for each head
    for path, slots in heads_of(record, "address_outs"):
        weights = np.moveaxis(record[str(path)], 2, 1)  # sample slot source target
        parts = [weights] if len(masks) == 1 else np.split(weights, len(masks))
        each = [overlaps(part, mask) for part, mask in zip(parts, masks, strict=True)]
        heads += slots
        scores += list(np.nanmean(np.concatenate(each, axis=1), axis=(1, 3)).T)  # slot region
    found = {}
    for name, row in zip(names, np.stack(scores, axis=1), strict=True):
        first = heads[int(np.argmax(row >= NEARLY * row.max()))].layer
        # Several heads of that layer may qualify: the best of them.
        best = max((i for i, h in enumerate(heads) if h.layer == first), key=lambda i: row[i])
        found[name] = heads[best], float(row[best])
    return found


def maker(record: Record, edge: Shorthand) -> Shorthand:
    """The referral head whose new edge is `edge` as it comes into a later sublayer."""
    # Attention sees the edges of its own layer's edge sublayers, referral those made before it.
    seen = (edge.layer + 1, 0) if edge.by == "a" else (edge.layer, edge.sublayer)
    before = [place for place in sublayers_with(record, "address_outs") if place < seen]
    if not before:
        raise ConfigError(
            f"{edge}: no referral head has made this edge, it is an input edge. Name one of a "
            f"later layer, such as l1e{edge.index}."
        )
    return Shorthand(before[-1][0], "referral", edge.index, sublayer=before[-1][1])


def coming_in(record: Record, head: Shorthand) -> Shorthand:
    """The edge of a head as the next edge sublayer sees it, after sharpening: l0r2 -> l1e2r.

    After the last edge sublayer there is only attention to see it: l7r2 -> l7e2a.
    """
    wanted = ("edge", "address_ins")
    later = [p for p in record.layer_paths if (p.sublayer, p.name) == wanted]
    for layer, sublayer in sorted((p.layer, p.index) for p in later):
        if (layer, sublayer) > (head.layer, head.sublayer):
            return Shorthand(layer, "edge", head.index, "r", sublayer=sublayer)
    return Shorthand(head.layer, "edge", head.index, "a")


def _heads(record: Record, usual: Sequence[str], choice: Choice) -> dict[str, Chosen]:
    """Region -> head, named by hand (also by the edge that it makes, `l1e2`) or found; of the
    regions, those that boards of this recording have: not all have boxes, or their own."""
    known, result = known_regions(record), {}
    regions = usual if choice.regions is None else choice.regions
    for name, text in choice.by_region.items():
        named = Shorthand.parse(text)
        if name not in known:
            raise ConfigError(
                f"Unknown region '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
        if named.kind == "attention":
            raise ConfigError(
                f"{name}={named}: a region is made by a referral head, such as l0r2, or named by "
                "the edge that comes of it, such as l1e2."
            )
        result[name] = Chosen(named, name)
        if named.kind == "edge":
            result[name] = Chosen(maker(record, named), f"{name}: {named}", named)
    wanted = [name for name in regions if name in known and name not in result]
    for name, (head, overlap) in (find_regions(record, wanted) if wanted else {}).items():
        result[name] = Chosen(head, f"{name} (overlap {overlap:.2f})")
    given = [name for name in result if name not in wanted]
    return {name: result[name] for name in [*given, *regions] if name in result}


def referral_row(
    at: Source, head: Shorthand, stages: Sequence[str] = tuple(STAGES)
) -> list[Panel | None]:
    """The boards of one referral head; a board that was not recorded is left blank."""
    there = [head.path(name) in at.record for name in stages]
    return [
        Panel(f"{head} {STAGES[name]}", at.look(head, name), at.cell) if known else None
        for name, known in zip(stages, there)
    ]


def chain_words(at: Source, head: Shorthand) -> str:
    """The edges that a head looked along, and those that it collected."""
    lines, e1 = [str(head)], {}
    if head.path("e1_weights") in at.record:
        weights = at.find(head, "e1_weights")
        edges, label = at.record.edges(at.sample, len(weights)), at.record.label
        e1 = {edges.name(at.cell, slot, label): weight for slot, weight in enumerate(weights)}
    for word, found in (("e1", e1), ("e2", at.e2_shares(head) or {})):
        top = sorted(found, key=lambda name: -found[name])[:3]
        if top:
            lines.append(f"{word}: " + " ".join(f"{name} {found[name]:.2f}" for name in top))
    return "\n".join(lines)


def construct(record: Record, choice: Choice) -> "Figure":
    """Edges that represent constraint regions, built in early layers (paper, section 3.4).

    For each region the head that completes it and, above it, heads of earlier layers that its edges
    came from. Heads may be named by hand, `box=l0r2`, or by edges as they come in, `box=l1e2`: then
    the edge after sharpening stands beside the head that made it.
    """
    at, sample = Source.of(record, choice), choice.sample
    rows, labels = [], []
    for chosen in _heads(record, ("box", "region", "row", "column"), choice).values():
        steps = at.lineage(chosen.head)[-(choice.depth or 3) :]
        rows += [referral_row(at, step) for step in steps]
        labels += [chain_words(at, step) for step in steps]
        labels[-1] = f"{chosen.words}\n{labels[-1]}"
        rows[-1] += chosen.as_edge(at)
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
        title=f"{record.name}: constraint regions, source {at.label}, sample {sample}",
        caption=f"Rows: referral heads, each region after the heads that its edges came from. "
        f"{SCALE_NOTE}",
    )


def middle(record: Record, choice: Choice) -> "Figure":
    """How the heads that make row and column regions find the cells they fetch from."""
    sample, cells = choice.sample, choice.sources or default_cells(record)
    chosen = [
        (item, Source(record, cell, sample))
        for item in _heads(record, ("row", "column"), choice).values()
        for cell in cells
    ]
    return panels(
        [referral_row(at, item.head, tuple(STAGES)[:-1]) for item, at in chosen],
        Geometry.of(record, sample),
        labels=[f"{item.words}\n{at.label}" for item, at in chosen],
        title=f"{record.name}: how n2 is found, sample {sample}",
    )


def expansion(record: Record, choice: Choice) -> "Figure":
    """The 1-2-4 construction in several source cells: the lineage of row and column edges.

    A region that is named by an edge (`row=l3e2`) is drawn as its edges come in, after sharpening.
    """
    sample, sources = choice.sample, choice.sources
    if sources is None:
        # Cells that are not in the middle of a row or column: a corner and another one.
        far = [n for n in (0, record.nodes - 2) if n in record.sources]
        sources = [*default_cells(record), *far]
    every = [Source(record, cell, sample) for cell in sources]
    chosen = _heads(record, ("row", "column"), choice)
    steps: list[tuple[Shorthand, str]] = []
    for item in chosen.values():
        chain, kind = every[0].lineage(item.head)[-(choice.depth or 4) :], "address-out"
        if item.edge is not None:
            chain = [*(coming_in(record, step) for step in chain[:-1]), item.edge]
            kind = "address-in"
        steps += [(step, kind) for step in chain]
    return panels(
        [[Panel(f"{step} {kind}", at.look(step), at.cell) for step, kind in steps] for at in every],
        Geometry.of(record, sample),
        labels=[at.label for at in every],
        title=f"{record.name}: expansion of {', '.join(chosen)} edges, sample {sample}",
        caption=f"Left to right: what the edges of {', then '.join(chosen)} came from in "
        f"successive layers. {SCALE_NOTE}",
    )


def compose(record: Record, choice: Choice) -> "Figure":
    """Composed regions: cross, and cross + box, with the e2 edges that they were made of."""
    at, sample, caption = Source.of(record, choice), choice.sample, SCALE_NOTE
    if record.edges(record.samples[0]).stay:
        caption += " Blue: made edges; orange: given edges, which stay; grey: the empty edge."
    rows, labels = [], []
    for chosen in _heads(record, ("cross", "cross+box", "cross+region"), choice).values():
        row = referral_row(at, chosen.head, ("n2_edge_factors", "n2_weights", "address_outs"))
        rows.append([*row[:2], *_collected_panels(at, chosen.head), row[2], *chosen.as_edge(at)])
        labels.append(f"{chosen.words}\n{chain_words(at, chosen.head)}")
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
        title=f"{record.name}: composed regions, source {at.label}, sample {sample}",
        caption=caption,
    )


def _collected_panels(at: Source, head: Shorthand) -> list[Panel | None]:
    """The edges collected most, as (n2, e2) pairs: the addresses that the new one is made of."""
    record, weights = at.record, at.collected(head)
    found: list[Panel | None] = [None] * COLLECTED
    if weights is None or head.path("address_ins") not in record:
        return found
    edges = record.edges(at.sample, weights.shape[1])
    for place, flat in enumerate(weights.reshape(-1).argsort()[::-1][:COLLECTED]):
        n2, slot = divmod(int(flat), weights.shape[1])
        kind, share = edges.kind(slot), weights[n2, slot]
        if share < WORTH_SHOWING or (kind == "made" and n2 not in record.sources):
            continue
        if kind == "made":
            edge = Shorthand(head.layer, "edge", slot, "r", sublayer=head.sublayer)
            name, values = str(edge), Source(record, n2, at.sample).look(edge)
        else:
            name, values = edges.name(n2, slot, record.label), edges.address(n2, slot)
        title, note = f"{name} of {record.label(n2)}", f"share {share:.2f}"
        found[place] = Panel(title, values, n2, note=note, kind=kind)
    return found
