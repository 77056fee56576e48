"""Figures of how edges are built: regions, middle cells, the 1-2-4 expansion, composition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.lab.analysis.figures.board import SCALE_NOTE, Geometry, Panel, panels
from graph_machine.lab.analysis.figures.edges_to_show import (
    collected,
    coming_in,
    default_cells,
    find_regions,
    lineage,
    look,
    maker,
    regions_of,
)
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What one referral head computes, in its order.
STAGES = (
    ("n2_edge_factors", "n2 edge factor"),
    ("n2_node_factors", "n2 node factor"),
    ("e2_factors", "e2 factor"),
    ("n2_weights", "n2 weights"),
    ("address_outs", "new address"),
)


WORTH_SHOWING = 0.01  # of the new edge's mass


def referral_row(
    record: Record, head: Shorthand, source: int, sample: int, stages: Sequence[str] | None = None
) -> list[Panel | None]:
    """The boards of one referral head; what was not recorded is left blank."""
    row: list[Panel | None] = []
    for name, title in STAGES:
        if stages is not None and name not in stages:
            continue
        if head.path(name) not in record:
            row.append(None)
            continue
        values = look(record, head, source, sample, name)
        row.append(Panel(f"{head} {title}", values, source))
    return row


def chain_words(record: Record, head: Shorthand, source: int, sample: int) -> str:
    """Which of its own edges a head looked along, and which edges it collected."""
    lines = [str(head)]
    e1 = None
    if head.path("e1_weights") in record:
        e1 = record.find(head, source, name="e1_weights", sample=sample)
    pairs = collected(record, head, source, sample)
    for word, shares in (("e1", e1), ("e2", None if pairs is None else pairs.sum(axis=0))):
        if shares is None:
            continue
        top = sorted(range(len(shares)), key=lambda slot: -shares[slot])[:3]
        lines.append(f"{word}: " + " ".join(f"e{s} {shares[s]:.2f}" for s in top))
    return "\n".join(lines)


@dataclass(frozen=True)
class Chosen:
    """The referral head of a region, a few words on it, and the edge, if it was named by that."""

    head: Shorthand
    words: str
    edge: Shorthand | None = None


def _heads(
    record: Record, regions: Sequence[str], heads: Mapping[str, str] | None
) -> dict[str, Chosen]:
    """Region -> head, named by hand (also by the edge that it makes, `l1e2`) or found."""
    given = {name: Shorthand.parse(text) for name, text in (heads or {}).items()}
    known = regions_of(record)
    result = {}
    for name, named in given.items():
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
    wanted = [name for name in regions if name not in given]
    for name, item in (find_regions(record, wanted) if wanted else {}).items():
        result[name] = Chosen(item.head, f"{name} (overlap {item.overlap:.2f})")
    return {name: result[name] for name in [*given, *regions] if name in result}


def _there(record: Record, regions: Sequence[str]) -> list[str]:
    """Those regions that boards of this recording have: not all have boxes, or their own."""
    known = regions_of(record)
    return [name for name in regions if name in known]


def _edge_panel(record: Record, edge: Shorthand, source: int, sample: int) -> Panel:
    """An edge as it comes in, after sharpening."""
    return Panel(f"{edge} address-in", look(record, edge, source, sample), source)


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
    regions = _there(record, regions)
    source = default_cells(record)[0] if source is None else source
    rows, labels = [], []
    for chosen in _heads(record, regions, heads).values():
        chain = lineage(record, chosen.head, source, sample)[-depth:]
        for step in chain:
            rows.append(referral_row(record, step, source, sample))
            about = chain_words(record, step, source, sample)
            labels.append(f"{chosen.words}\n{about}" if step is chain[-1] else about)
        if chosen.edge is not None:
            rows[-1].append(_edge_panel(record, chosen.edge, source, sample))
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
        title=f"{record.name}: constraint regions, source {record.label(source)}, sample {sample}",
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
    rows, labels = [], []
    for chosen in _heads(record, ("row", "column"), heads).values():
        for source in sources:
            rows.append(referral_row(record, chosen.head, source, sample, stages))
            labels.append(f"{chosen.words}\n{record.label(source)}")
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
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
    first = sources[0]
    chosen = _heads(record, ("row", "column"), heads)
    steps: list[tuple[Shorthand, str]] = []
    for item in chosen.values():
        chain = lineage(record, item.head, first, sample)[-depth:]
        if item.edge is None:
            steps += [(step, "address-out") for step in chain]
        else:
            edges = [*(coming_in(record, step) for step in chain[:-1]), item.edge]
            steps += [(edge, "address-in") for edge in edges]
    rows = [
        [
            Panel(f"{step} {kind}", look(record, step, source, sample), source)
            for step, kind in steps
        ]
        for source in sources
    ]
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=[record.label(source) for source in sources],
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
    regions = _there(record, regions)
    source = default_cells(record)[0] if source is None else source
    rows, labels = [], []
    for chosen in _heads(record, regions, heads).values():
        head = chosen.head
        row = referral_row(
            record, head, source, sample, ("n2_edge_factors", "n2_weights", "address_outs")
        )
        rows.append([*row[:2], *_collected(record, head, source, sample), *row[2:]])
        if chosen.edge is not None:
            rows[-1].append(_edge_panel(record, chosen.edge, source, sample))
        labels.append(f"{chosen.words}\n{chain_words(record, head, source, sample)}")
    return panels(
        rows,
        Geometry.of(record, sample),
        labels=labels,
        title=f"{record.name}: composed regions, source {record.label(source)}, sample {sample}",
    )


def _collected(
    record: Record, head: Shorthand, source: int, sample: int, count: int = 3
) -> list[Panel | None]:
    """The edges collected most, as (n2, e2) pairs: the addresses that the new one is made of."""
    weights = collected(record, head, source, sample)
    if weights is None or head.path("address_ins") not in record:
        return [None] * count
    order = weights.reshape(-1).argsort()[::-1][:count]
    found: list[Panel | None] = []
    for flat in order:
        n2, slot = divmod(int(flat), weights.shape[1])
        edge = Shorthand(head.layer, "edge", slot, "r", sublayer=head.sublayer)
        note = f"share {weights[n2, slot]:.2f}"
        if n2 not in record.sources or weights[n2, slot] < WORTH_SHOWING:
            found.append(None)
            continue
        panel = Panel(f"{edge} of {record.label(n2)}", look(record, edge, n2, sample), n2)
        found.append(replace(panel, note=note))
    return found
