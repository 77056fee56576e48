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


@dataclass(frozen=True)
class Source:
    """A source cell of a sample: what is to be drawn of its edges and heads."""

    record: Record
    cell: int
    sample: int = 0

    @classmethod
    def of(cls, record: Record, cell: int | None, sample: int = 0) -> "Source":
        """The given cell, or the first of the default ones."""
        return cls(record, default_cells(record)[0] if cell is None else cell, sample)

    @property
    def label(self) -> str:
        """`r2c2`, or `n17` elsewhere than on a grid."""
        return self.record.label(self.cell)

    def find(self, short: Shorthand, name: str | None = None) -> Float[np.ndarray, "*rest"]:
        """What was recorded under a shorthand."""
        return self.record.find(short, self.cell, name=name, sample=self.sample)

    def look(self, short: Shorthand, name: str | None = None) -> Float[np.ndarray, "target"]:
        """Weights over targets to be drawn: factors after a softmax, e2 summed over its slots.

        In a causal sequence the softmax is over what the source sees, as in the weights.
        """
        value = self.find(short, name)
        if short.path(name).rpartition(".")[2] in FACTORS:
            shape = value.shape
            if self.record.causal:
                value = value.astype(np.float32, copy=True)
                value[self.cell + 1 :] = -np.inf
            value = softmax(value.reshape(-1)).reshape(shape)
        return value.sum(axis=-1) if value.ndim == 2 else value

    def collected(self, head: Shorthand) -> Float[np.ndarray, "target e2_slot"] | None:
        """How much of a new edge comes from each (n2, e2) pair; None where it was not recorded.

        Joint and conditional referral weigh the pairs. In pre-aggregated referral every n2 mixes
        its own edges first, so that a pair has the weight of n2 times the share of e2 in that
        mixture.
        """
        if head.path("e2_weights") in self.record:
            return self.find(head, "e2_weights")
        own = head.path("e2_own_weights")
        if own not in self.record or head.path("n2_weights") not in self.record:
            return None
        weights = self.record.of_sample(own, self.sample)[head.index]
        return self.find(head, "n2_weights")[:, None] * weights

    def e2_shares(self, head: Shorthand) -> dict[str, float] | None:
        """How much of a new edge comes from e0, e1, ..., from given edges and from empty ones."""
        pairs = self.collected(head)
        if pairs is None:
            return None
        edges, found = self.record.edges(self.sample, pairs.shape[1]), dict[str, float]()
        for slot, share in enumerate(pairs.sum(axis=0)):
            kind = edges.kind(slot)
            name = f"e{slot}" if kind == "made" else kind
            found[name] = found.get(name, 0.0) + float(share)
        return found

    def lineage(self, head: Shorthand) -> list[Shorthand]:
        """The referral heads that a head's edges came from, first layer first.

        One step back is the slot that it collected most from, as e2. The line ends where that was
        not recorded, or at given or empty edges, which no head has made.
        """
        chain = [head]
        made = sorted({(p.layer, p.index) for p in places(self.record, "edge", "address_outs")})
        for layer, index in reversed([at for at in made if at < (head.layer, head.sublayer)]):
            shares = self.e2_shares(chain[-1])
            most = "" if shares is None else max(shares, key=lambda name: shares[name])
            if not most.startswith("e") or most == "empty":
                break
            chain.append(Shorthand(layer, "referral", int(most[1:]), sublayer=index))
        return chain[::-1]


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


def heads_of(
    record: Record, name: str, layers: Sequence[int] | None = None
) -> list[tuple[TensorPath, list[Shorthand]]]:
    """The heads of every sublayer that a tensor of this name was recorded of."""
    referral = name == "address_outs" or name.startswith("n2_")
    sublayer, kind = ("edge", "referral") if referral else ("node", "attention")
    found = []
    for path in places(record, sublayer, name):
        if layers is not None and path.layer not in layers:
            continue
        axis = record.axes[str(path)].index("slot" if name == "address_outs" else "head")
        count = record.tensors[str(path)].shape[axis]
        heads = [Shorthand(path.layer, kind, i, sublayer=path.index) for i in range(count)]
        found.append((path, heads))
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
        found[name] = Found(heads[best], float(row[best]))
    return found


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
    for layer, sublayer in later:
        if (layer, sublayer) > (head.layer, head.sublayer):
            return Shorthand(layer, "edge", head.index, "r", sublayer=sublayer)
    return Shorthand(head.layer, "edge", head.index, "a")


def adaptivity(weights: Float[np.ndarray, "sample *slots target"]) -> Float[np.ndarray, "*slots"]:
    """Share of an address that varies over samples, as in `detectors.EdgeSums`."""
    weights = weights.astype(np.float64)
    mean = weights.mean(axis=0)
    return np.asarray(1 - (mean**2).sum(axis=-1) / (weights**2).sum(axis=-1).mean(axis=0))


def edge_adaptivity(record: Record, head: Shorthand, source: int) -> float:
    """Of one new edge, over all recorded samples."""
    weights = record[head.path()][:, record.column(source), head.index]
    return float(np.clip(adaptivity(weights), 0, 1))


def _best(found: list[tuple[float, Shorthand]], count: int) -> list[Shorthand]:
    """The heads with the greatest scores, in the order of layers."""
    found.sort(key=lambda item: -item[0])
    return sorted((head for _, head in found[:count]), key=lambda h: (h.layer, h.index))


def adaptive_edges(
    record: Record, source: int, layers: Sequence[int], count: int
) -> list[Shorthand]:
    """The edges of a source cell that vary most over samples."""
    found: list[tuple[float, Shorthand]] = []
    for path, heads in heads_of(record, "address_outs", layers):
        weights = record[str(path)][:, record.column(source)]  # sample slot target
        # A little variation of a nearly uniform edge does not make a picture.
        drawn = adaptivity(weights) * weights.max(axis=-1).mean(axis=0)
        found += zip(drawn.tolist(), heads, strict=True)
    return _best(found, count)


def shared_heads(source: Source, kind: str, count: int) -> list[Shorthand]:
    """Heads in which both experts say something: neither factor is near uniform."""
    prefix = "" if kind == "attention" else "n2_"
    found: list[tuple[float, Shorthand]] = []
    for _, heads in heads_of(source.record, f"{prefix}edge_factors"):
        for head in heads:
            said = 1.0
            for name in ("edge_factors", "node_factors"):
                weights = source.look(head, prefix + name)
                entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum()
                said *= 1 - entropy / np.log(len(weights))
            found.append((float(said), head))
    return _best(found, count)
