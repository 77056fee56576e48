"""Figures of how edges are built: regions, middle cells, the 1-2-4 expansion, composition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.lab.analysis.figures.board import (
    SCALE_NOTE,
    Geometry,
    Panel,
    kinds_note,
    panels,
)
from graph_machine.lab.analysis.figures.edges_to_show import (
    Source,
    coming_in,
    default_cells,
    find_regions,
    maker,
    regions_of,
)
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


def referral_row(
    source: Source, head: Shorthand, stages: Sequence[str] = tuple(STAGES)
) -> list[Panel | None]:
    """The boards of one referral head; what was not recorded is left blank."""
    return [
        Panel(f"{head} {STAGES[name]}", source.look(head, name), source.cell)
        if head.path(name) in source.record
        else None
        for name in stages
    ]


def chain_words(source: Source, head: Shorthand) -> str:
    """Which of its own edges a head looked along, and which edges it collected."""
    lines, shares = [str(head)], {}
    if head.path("e1_weights") in source.record:
        weights = source.find(head, "e1_weights")
        edges = source.record.edges(source.sample, len(weights))
        shares["e1"] = {
            edges.name(source.cell, slot, source.record.label): weight
            for slot, weight in enumerate(weights)
        }
    shares["e2"] = source.e2_shares(head) or {}
    for word, found in shares.items():
        top = sorted(found, key=lambda name: -found[name])[:3]
        if top:
            lines.append(f"{word}: " + " ".join(f"{name} {found[name]:.2f}" for name in top))
    return "\n".join(lines)


@dataclass(frozen=True)
class Chosen:
    """The referral head of a region, a few words on it, and the edge, if it was named by that."""

    head: Shorthand
    words: str
    edge: Shorthand | None = None

    def as_edge(self, source: Source) -> list[Panel | None]:
        """That edge as it comes in, after sharpening."""
        if self.edge is None:
            return []
        return [Panel(f"{self.edge} address-in", source.look(self.edge), source.cell)]


def _heads(
    record: Record, regions: Sequence[str], heads: Mapping[str, str] | None
) -> dict[str, Chosen]:
    """Region -> head, named by hand (also by the edge that it makes, `l1e2`) or found; of the
    regions, those that boards of this recording have: not all have boxes, or their own."""
    known, result = regions_of(record), {}
    for name, text in (heads or {}).items():
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
        if named.kind == "edge":
            result[name] = Chosen(maker(record, named), f"{name}: {named}", named)
        else:
            result[name] = Chosen(named, name)
    wanted = [name for name in regions if name in known and name not in result]
    found = find_regions(record, wanted) if wanted else {}
    given = list(result)
    for name, item in found.items():
        result[name] = Chosen(item.head, f"{name} (overlap {item.overlap:.2f})")
    return {name: result[name] for name in [*given, *regions] if name in result}


def construct(
    record: Record,
    *,
    sample: int = 0,
    source: int | None = None,
    regions: Sequence[str] = ("box", "region", "row", "column"),
    heads: Mapping[str, str] | None = None,
    depth: int = 3,
) -> "Figure":
    """Edges that represent constraint regions, built in early layers (paper, section 3.4).

    For each region the head that completes it and, above it, up to `depth` - 1 heads of earlier
    layers that its edges came from. `heads` names heads by hand, {"box": "l0r2"}, or edges as they
    come in, {"box": "l1e2"}: then the edge after sharpening stands beside the head that made it.
    """
    at = Source.of(record, source, sample)
    rows, labels = [], []
    for chosen in _heads(record, regions, heads).values():
        for step in at.lineage(chosen.head)[-depth:]:
            rows.append(referral_row(at, step))
            labels.append(chain_words(at, step))
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


def middle(
    record: Record,
    *,
    sample: int = 0,
    sources: Sequence[int] | None = None,
    heads: Mapping[str, str] | None = None,
) -> "Figure":
    """How the heads that make row and column regions find the cells they fetch from."""
    sources = default_cells(record) if sources is None else sources
    stages = ("n2_edge_factors", "n2_node_factors", "e2_factors", "n2_weights")
    chosen = [
        (item, Source(record, cell, sample))
        for item in _heads(record, ("row", "column"), heads).values()
        for cell in sources
    ]
    return panels(
        [referral_row(at, item.head, stages) for item, at in chosen],
        Geometry.of(record, sample),
        labels=[f"{item.words}\n{at.label}" for item, at in chosen],
        title=f"{record.name}: how n2 is found, sample {sample}",
    )


def expansion(
    record: Record,
    *,
    sample: int = 0,
    sources: Sequence[int] | None = None,
    heads: Mapping[str, str] | None = None,
    depth: int = 4,
) -> "Figure":
    """The 1-2-4 construction in several source cells: the lineage of row and column edges.

    A region that is named by an edge (`row=l3e2`) is drawn as its edges come in, after sharpening.
    """
    if sources is None:
        # Cells that are not in the middle of a row or column: a corner and another one.
        far = [n for n in (0, record.nodes - 2) if n in record.sources]
        sources = [*default_cells(record), *far]
    every = [Source(record, cell, sample) for cell in sources]
    chosen = _heads(record, ("row", "column"), heads)
    steps: list[tuple[Shorthand, str]] = []
    for item in chosen.values():
        chain = every[0].lineage(item.head)[-depth:]
        if item.edge is None:
            steps += [(step, "address-out") for step in chain]
        else:
            edges = [*(coming_in(record, step) for step in chain[:-1]), item.edge]
            steps += [(edge, "address-in") for edge in edges]
    return panels(
        [[Panel(f"{step} {kind}", at.look(step), at.cell) for step, kind in steps] for at in every],
        Geometry.of(record, sample),
        labels=[at.label for at in every],
        title=f"{record.name}: expansion of {', '.join(chosen)} edges, sample {sample}",
        caption=f"Left to right: what the edges of {', then '.join(chosen)} came from in "
        f"successive layers. {SCALE_NOTE}",
    )


def compose(
    record: Record,
    *,
    sample: int = 0,
    source: int | None = None,
    regions: Sequence[str] = ("cross", "cross+box", "cross+region"),
    heads: Mapping[str, str] | None = None,
) -> "Figure":
    """Composed regions: cross, and cross + box, with the e2 edges that they were made of."""
    at = Source.of(record, source, sample)
    rows, labels = [], []
    for chosen in _heads(record, regions, heads).values():
        row = referral_row(at, chosen.head, ("n2_edge_factors", "n2_weights", "address_outs"))
        rows.append([*row[:2], *_collected(at, chosen.head), row[2], *chosen.as_edge(at)])
        labels.append(f"{chosen.words}\n{chain_words(at, chosen.head)}")
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
        title=f"{record.name}: composed regions, source {at.label}, sample {sample}",
        caption=SCALE_NOTE + kinds_note(record),
    )


def _collected(source: Source, head: Shorthand) -> list[Panel | None]:
    """The edges collected most, as (n2, e2) pairs: the addresses that the new one is made of."""
    record, weights = source.record, source.collected(head)
    if weights is None or head.path("address_ins") not in record:
        return [None] * COLLECTED
    edges, found = record.edges(source.sample, weights.shape[1]), []
    for flat in weights.reshape(-1).argsort()[::-1][:COLLECTED]:
        n2, slot = divmod(int(flat), weights.shape[1])
        kind = edges.kind(slot)
        edge = Shorthand(head.layer, "edge", slot, "r", sublayer=head.sublayer)
        if weights[n2, slot] < WORTH_SHOWING or (kind == "made" and n2 not in record.sources):
            found.append(None)
            continue
        name, values = edges.name(n2, slot, record.label), None
        if kind == "made":
            name, values = str(edge), Source(record, n2, source.sample).look(edge)
        values = edges.address(n2, slot) if values is None else values
        title, note = f"{name} of {record.label(n2)}", f"share {weights[n2, slot]:.2f}"
        found.append(Panel(title, values, n2, note=note, kind=kind))
    return found
