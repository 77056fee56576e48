"""The edges to show: the paper names those of its model, here the region detectors find them.

The paper's `l1e2` is the box in *its* trained model; in another model the box may be elsewhere, or
nowhere. Every choice made here can be made by hand instead, as an argument of the figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.analysis.regions import make_regions, overlaps
from graph_machine.lab.records.naming import FACTORS, Shorthand, TensorPath, paper_cells
from graph_machine.lab.records.record import Record

# A region counts as built in the first layer that comes this close to the best overlap of all.
NEARLY = 0.95


@dataclass(frozen=True)
class Found:
    """A referral head and how well the edge that it makes fits."""

    head: Shorthand
    overlap: float


def softmax(logits: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def look(
    record: Record, short: Shorthand, source: int, sample: int, name: str | None = None
) -> Float[np.ndarray, "target"]:
    """Weights over targets to be drawn: factors after a softmax, e2 summed over its slots.

    In a causal sequence the softmax is over what the source sees, as in the weights.
    """
    path = short.path(name)
    value = record.find(short, source, name=name, sample=sample)
    if path.rpartition(".")[2] in FACTORS:
        shape = value.shape
        if record.causal:
            value = value.astype(np.float32, copy=True)
            value[source + 1 :] = -np.inf
        value = softmax(value.reshape(-1)).reshape(shape)
    return value.sum(axis=-1) if value.ndim == 2 else value


def default_cells(record: Record) -> tuple[int, ...]:
    """The paper's three source cells, adapted to the board; those of them that were recorded."""
    if record.grid is None:
        return tuple(record.sources[:3])
    cells = tuple(c for c in paper_cells(*record.grid, record.box) if c in record.sources)
    return cells or tuple(record.sources[:3])


def places(record: Record, sublayer: str, name: str) -> list[TensorPath]:
    """Recorded tensors of one name, layer by layer."""
    found = [p for p in record.layer_paths if p.sublayer == sublayer and p.name == name]
    if not found:
        some = any(p.sublayer == sublayer for p in record.layer_paths)
        again = f"; record it again with --names including {name}" if some else ""
        raise DataError(
            f"This figure needs '{name}' of {sublayer} sublayers, which the recording of "
            f"{record.name} does not have{again}."
        )
    return found


def regions_of(record: Record, row: int | None = None) -> dict[str, Bool[np.ndarray, "n n"]]:
    """Region name -> targets of each source; the `row`th sample's own, where each has its own."""
    known = make_regions(record.grid or (1, record.nodes), record.box)
    if record.regions is not None:
        labels = record.regions[0 if row is None else row]
        own = labels[:, None] == labels[None]
        known |= {"region": own, "cross+region": known["cross"] | own}
    return known


def find_regions(record: Record, names: Sequence[str]) -> dict[str, Found]:
    """The referral heads that build each region, over all recorded sources and samples."""
    if record.grid is None:
        raise DataError("Regions are defined on grids; the graph of this recording is not a grid.")
    # One stack of masks, or one for every sample.
    rows = [None] if record.regions is None else range(len(record.samples))
    masks = [
        np.stack([known[name][record.sources] for name in names])
        for known in (regions_of(record, row) for row in rows)
    ]
    heads: list[Shorthand] = []
    scores: list[np.ndarray] = []  # region, for each head
    for path in places(record, "edge", "address_outs"):
        weights = np.moveaxis(record[str(path)], 2, 1)  # sample slot source target
        parts = [weights] if len(masks) == 1 else np.split(weights, len(masks))
        each = [overlaps(part, mask) for part, mask in zip(parts, masks, strict=True)]
        means = np.nanmean(np.concatenate(each, axis=1), axis=(1, 3))  # region slot
        heads += [
            Shorthand(path.layer, "referral", slot, sublayer=path.index)
            for slot in range(means.shape[1])
        ]
        scores += list(means.T)
    table = np.stack(scores, axis=1)  # region head
    first = [int(np.argmax(row >= NEARLY * row.max())) for row in table]
    # Several heads of that layer may qualify: the best of them.
    best = [
        max(
            (i for i in range(len(heads)) if heads[i].layer == heads[start].layer),
            key=lambda i, row=row: row[i],
        )
        for start, row in zip(first, table)
    ]
    return {
        name: Found(heads[i], float(row[i]))
        for name, i, row in zip(names, best, table, strict=True)
    }


def maker(record: Record, edge: Shorthand) -> Shorthand:
    """The referral head whose new edge is `edge` as it comes into a later sublayer."""
    made = sorted({(p.layer, p.index) for p in places(record, "edge", "address_outs")})
    # Attention sees the edges of its own layer's edge sublayers, referral those made before it.
    seen = (edge.layer + 1, 0) if edge.by == "a" else (edge.layer, edge.sublayer)
    before = [place for place in made if place < seen]
    if not before:
        raise ConfigError(
            f"{edge}: no referral head has made this edge, it is an input edge. Name one of a "
            f"later layer, such as l1e{edge.index}."
        )
    layer, sublayer = before[-1]
    return Shorthand(layer, "referral", edge.index, sublayer=sublayer)


def coming_in(record: Record, head: Shorthand) -> Shorthand:
    """The edge of a head as the next edge sublayer sees it, after sharpening: l0r2 -> l1e2r.

    After the last edge sublayer there is only attention to see it: l7r2 -> l7e2a.
    """
    places_in = [p for p in record.layer_paths if p.name == "address_ins"]
    later = sorted((p.layer, p.index) for p in places_in if p.sublayer == "edge")
    later = [place for place in later if place > (head.layer, head.sublayer)]
    if later:
        layer, sublayer = later[0]
        return Shorthand(layer, "edge", head.index, "r", sublayer=sublayer)
    return Shorthand(head.layer, "edge", head.index, "a")


def collected(
    record: Record, head: Shorthand, source: int, sample: int
) -> Float[np.ndarray, "target e2_slot"] | None:
    """How much of a new edge comes from each (n2, e2) pair; None where that was not recorded.

    Joint and conditional referral weigh the pairs. In pre-aggregated referral every n2 mixes its
    own edges first, so that a pair has the weight of n2 times the share of e2 in that mixture.
    """
    if head.path("e2_weights") in record:
        return record.find(head, source, name="e2_weights", sample=sample)
    own = head.path("e2_own_weights")
    if own not in record or head.path("n2_weights") not in record:
        return None
    n2 = record.find(head, source, name="n2_weights", sample=sample)
    return n2[:, None] * record.of_sample(own, sample)[head.index]


def lineage(record: Record, head: Shorthand, source: int, sample: int) -> list[Shorthand]:
    """The referral heads that a head's edges came from, first layer first.

    One step back is the slot that it collected most from, as e2. The line ends where that was not
    recorded.
    """
    chain = [head]
    layers = sorted({(p.layer, p.index) for p in places(record, "edge", "address_outs")})
    for layer, index in reversed([at for at in layers if at < (head.layer, head.sublayer)]):
        pairs = collected(record, chain[-1], source, sample)
        if pairs is None:
            break
        slot = int(pairs.sum(axis=0).argmax())
        chain.append(Shorthand(layer, "referral", slot, sublayer=index))
    return chain[::-1]


def adaptivity(weights: Float[np.ndarray, "sample *slots target"]) -> Float[np.ndarray, "*slots"]:
    """Share of an address that varies over samples, as in `regions.EdgeSums`."""
    weights = weights.astype(np.float64)
    mean = weights.mean(axis=0)
    return np.asarray(1 - (mean**2).sum(axis=-1) / (weights**2).sum(axis=-1).mean(axis=0))


def edge_adaptivity(record: Record, head: Shorthand, source: int) -> float:
    """Of one new edge, over all recorded samples."""
    weights = record[head.path()][:, record.column(source), head.index]
    return float(np.clip(adaptivity(weights), 0, 1))


def adaptive_edges(
    record: Record, source: int, layers: Sequence[int], count: int
) -> list[Shorthand]:
    """The edges of a source cell that vary most over samples."""
    found: list[tuple[float, Shorthand]] = []
    for path in places(record, "edge", "address_outs"):
        if path.layer not in layers:
            continue
        weights = record[str(path)][:, record.column(source)]  # sample slot target
        # A little variation of a nearly uniform edge does not make a picture.
        drawn = adaptivity(weights) * weights.max(axis=-1).mean(axis=0)
        found += [
            (float(drawn[slot]), Shorthand(path.layer, "referral", slot, sublayer=path.index))
            for slot in range(len(drawn))
        ]
    found.sort(key=lambda item: -item[0])
    return sorted((head for _, head in found[:count]), key=lambda h: (h.layer, h.index))


def shared_heads(
    record: Record, source: int, sample: int, kind: str, layers: Sequence[int], count: int
) -> list[Shorthand]:
    """Heads in which both experts say something: neither factor is near uniform."""
    attention = kind == "attention"
    names = ("edge_factors", "node_factors")
    names = names if attention else tuple(f"n2_{name}" for name in names)
    found: list[tuple[float, Shorthand]] = []
    for path in places(record, "node" if attention else "edge", names[0]):
        if path.layer not in layers:
            continue
        heads = len(record.of_sample(str(path), sample))
        for index in range(heads):
            short = Shorthand(
                path.layer, "attention" if attention else "referral", index, sublayer=path.index
            )
            said = 1.0
            for name in names:
                weights = look(record, short, source, sample, name)
                entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum()
                said *= 1 - entropy / np.log(len(weights))
            found.append((float(said), short))
    found.sort(key=lambda item: -item[0])
    return sorted((head for _, head in found[:count]), key=lambda h: (h.layer, h.index))
