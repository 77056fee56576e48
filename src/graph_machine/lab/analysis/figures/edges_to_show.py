"""The edges to show: the paper names those of its model, here they are found.

The paper's `l1e2` is the box in *its* trained model; in another model the box may be elsewhere, or
nowhere. Every choice made here can be made by hand instead: a `Choice`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from graph_machine.errors import DataError
from graph_machine.lab.records.naming import FACTORS, Shorthand, TensorPath, paper_cells
from graph_machine.lab.records.record import Record


@dataclass(frozen=True)
class Choice:
    """What a person wants to see. Each figure uses what applies to it and picks the rest."""

    sample: int = 0
    samples: Sequence[int] | None = None  # side by side
    source: int | None = None
    sources: Sequence[int] | None = None  # of figures that show several
    heads: Sequence[str] | Mapping[str, str] = ()  # l0r2; of a region: box=l0r2, or box -> l0r2
    regions: Sequence[str] | None = None
    layers: Sequence[int] | None = None
    depth: int | None = None  # heads of a lineage

    @property
    def by_region(self) -> dict[str, str]:
        """Heads and edges that are named for a region."""
        if isinstance(self.heads, Mapping):
            return dict(self.heads)
        return dict(word.split("=", 1) for word in self.heads if "=" in word)

    @property
    def plain(self) -> list[Shorthand]:
        """The other ones."""
        return [Shorthand.parse(word) for word in self.heads if "=" not in word]


@dataclass(frozen=True)
class Source:
    """A source cell of a sample, whose edges and heads are drawn."""

    record: Record
    cell: int
    sample: int = 0

    @classmethod
    def of(cls, record: Record, choice: Choice) -> "Source":
        """The chosen cell, or the first of the default ones."""
        cell = default_cells(record)[0] if choice.source is None else choice.source
        return cls(record, cell, choice.sample)

    @property
    def label(self) -> str:
        """`r2c2`, or `n17` elsewhere than on a grid."""
        return self.record.label(self.cell)

    def find(self, short: Shorthand, name: str | None = None) -> Float[np.ndarray, "*rest"]:
        """The recorded values of a shorthand."""
        return self.record.find(short, self.cell, name=name, sample=self.sample)

    def look(self, short: Shorthand, name: str | None = None) -> Float[np.ndarray, "target"]:
        """Weights over targets to be drawn: factors after a softmax, e2 summed over its slots.

        In a causal sequence the softmax is over what the source sees, as in the weights.
        """
        value = self.find(short, name)
        if short.path(name).rpartition(".")[2] in FACTORS:
            if self.record.causal:
                value = value.astype(np.float32, copy=True)
                value[self.cell + 1 :] = -np.inf
            powers = np.exp(value - value.max())
            value = powers / powers.sum()
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
        chain, made = [head], sublayers_with(self.record, "address_outs")
        for layer, index in reversed([at for at in made if at < (head.layer, head.sublayer)]):
            shares = self.e2_shares(chain[-1])
            most = "" if shares is None else max(shares, key=lambda name: shares[name])
            if not most.startswith("e") or most == "empty":
                break
            chain.append(Shorthand(layer, "referral", int(most[1:]), sublayer=index))
        return chain[::-1]


def default_cells(record: Record) -> tuple[int, ...]:
    """The paper's three source cells, adapted to the board; those of them that were recorded."""
    found = () if record.grid is None else paper_cells(*record.grid, record.box)
    return tuple(c for c in found if c in record.sources) or tuple(record.sources[:3])


def sublayers_with(record: Record, name: str) -> list[tuple[int, int]]:
    """(layer, index) of the edge sublayers that a tensor of this name was recorded of."""
    return sorted({(p.layer, p.index) for p in places(record, "edge", name)})


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
        if layers is None or path.layer in layers:
            axis = record.axes[str(path)].index("slot" if name == "address_outs" else "head")
            count = range(record.tensors[str(path)].shape[axis])
            found.append(
                (path, [Shorthand(path.layer, kind, i, sublayer=path.index) for i in count])
            )
    return found


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
    for head in (h for _, heads in heads_of(source.record, f"{prefix}edge_factors") for h in heads):
        said = 1.0
        for name in ("edge_factors", "node_factors"):
            weights = source.look(head, prefix + name)
            entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum()
            said *= 1 - entropy / np.log(len(weights))
        found.append((float(said), head))
    return _best(found, count)
