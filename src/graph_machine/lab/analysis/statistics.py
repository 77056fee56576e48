"""The paper's statistics of temperatures and entropies (appendix C), streamed over a data set.

Nothing but sums is kept, so a whole test set costs no more memory than one batch. The same pass
can feed the detectors with the first few puzzles. `TABLES` are the paper's four tables with its
numbers; `statistics_frame` has everything that was measured as one long table.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError, MissingExtraError
from graph_machine.lab.analysis import detectors
from graph_machine.lab.analysis.detectors import EdgeSums, FactorSums, Means, Regions, RoundSums
from graph_machine.lab.analysis.regions import hop_distances, make_regions, make_spans
from graph_machine.lab.records.naming import AXES, FACTORS, TensorPath, cell_name, paper_cells
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen
from graph_machine.ops.address.dense import normalised_entropy

if TYPE_CHECKING:
    from pandas import DataFrame

PAPER_BUDGET = "9x9 board, 32 layers, 100,000 steps of 64, ten seeds"


class Column(NamedTuple):
    """A quantity of a table, and the paper's means for it: 9x9 boards, 100k steps, ten seeds."""

    heading: str
    quantity: str  # sublayer.tensor
    gm: float
    transformer: float | None = None


@dataclass(frozen=True)
class Table:
    """One of the paper's four tables: title, and columns in the paper's order.

    >>> [table.key for table in TABLES]
    ['sharpener-temps', 'factor-temps', 'factor-entropies', 'address-entropies']
    """

    key: str
    title: str
    columns: tuple[Column, ...]


_paper = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
TABLES = tuple(
    Table(key, table["title"], tuple(Column(*column) for column in table["columns"]))
    for key, table in _paper.items()
)
COLUMNS = tuple(column for table in TABLES for column in table.columns)
QUANTITIES = frozenset(column.quantity for column in COLUMNS)
PAPER: dict[str, dict[str, float]] = {
    "GM": {column.quantity: column.gm for column in COLUMNS},
    "Transformer": {c.quantity: c.transformer for c in COLUMNS if c.transformer is not None},
}

# A factor's logit where a source does not see the target; finite, so that sums of factors are.
IMPOSSIBLE = -1e9
# Factors whose division of labour is reported.
LABOUR = ("n2_edge_factors", "n2_node_factors", "edge_factors", "node_factors")
# What is kept until the sublayer's other tensors have come.
KEPT = ("address_ins", "n2_edge_factors", "edge_factors")
KEPT += ("n2_edge_factor_temps", "edge_factor_temps")


class Value(NamedTuple):
    """One number that was measured: a row of `statistics_frame`.

    >>> Value(0, 3, "edge.n2_weights", -1, 0.5).layer
    3
    """

    round: int  # of a recurrent core, from 1; 0: the layers before it
    layer: int  # -1: the whole model
    quantity: str
    slot: int  # or head; -1: all of them
    value: float


@dataclass
class Statistics:
    """All measurements of one model; quantities that it does not have are absent.

    Quantities are `sublayer.tensor` for the columns of the paper's tables and `detector.name` for
    the others.

    >>> values = [Value(0, layer, "node.weights", -1, 0.5) for layer in range(2)]
    >>> Statistics(values=values).mean("node.weights")
    0.5
    """

    puzzles: int = 0
    detected: int = 0  # puzzles that the detectors have seen
    values: list[Value] = field(default_factory=list)

    def by_layer(self, quantity: str, round: int = 0) -> dict[int, float]:
        """Layer -> value, of a quantity that is not of single slots."""
        return {v.layer: v.value for v in self.values if (v.quantity, v.round) == (quantity, round)}

    def mean(self, quantity: str) -> float | None:
        """Over all layers that have it; None where the model has no such thing."""
        values = self.by_layer(quantity).values()
        return sum(values) / len(values) if values else None


class _Place:
    """Sums up what the taps of one place report: the layers, or the core in one round."""

    def __init__(self, look: "_Listener", reads: bool = False) -> None:
        # By layer and name: that of a detector, or a column of the paper's tables.
        self.found: dict[tuple[int, str], Any] = {}
        self.look, self.reads = look, reads
        self.at: tuple[int, str, int] | None = None
        self.kept: dict[str, Tensor] = {}  # of the sublayer whose tensors are passing

    def take(self, path: TensorPath, tensor: Tensor) -> None:
        if not tensor.numel():  # given edges that stay: no slots before the first referral
            return
        quantity = f"{path.sublayer}.{path.name}"
        mask = past(path.name, tensor) if self.look.causal else None
        if mask is not None and path.name in FACTORS:
            tensor = tensor.float().masked_fill(~mask, IMPOSSIBLE)
        if quantity in QUANTITIES:
            value = tensor if path.name.endswith("_temps") else entropies(path.name, tensor, mask)
            total = float(value.double().sum())
            self._means(path.layer, quantity, {"": (total, value.numel())})
        if self.look.detect:
            self._detect(path, quantity, tensor)

    def _means(self, layer: int, name: str, shares: detectors.Shares) -> None:
        self.found.setdefault((layer, name), Means()).add(shares)

    def _detect(self, path: TensorPath, quantity: str, tensor: Tensor) -> None:
        look, name, layer, sublayer = self.look, path.name, path.layer, path.sublayer
        regions, hops = look.regions or {}, look.hops
        if name in ("address_ins", "address_outs") and regions and hops is not None:
            place = (layer, f"{sublayer}:{name.removeprefix('address_').removesuffix('s')}")
            edges = self.found.setdefault(place, EdgeSums(regions, hops, look.cells))
            edges.hops = hops
            edges.add(tensor.float().cpu().numpy())
        if name in LABOUR and look.digits is not None:
            weights = tensor.float().softmax(dim=-1).cpu().numpy()
            labour = self.found.setdefault((layer, f"labour.{quantity}"), FactorSums())
            labour.add(weights, look.digits)
        if self.reads and quantity in ("node.e1_weights", "node.weights"):
            weights = tensor.float().cpu().numpy()
            read = detectors.slots_read(weights)
            if name == "weights":
                read = detectors.regions_read(weights, regions)
            self._means(layer, "reading", read)
        if self.at != (layer, sublayer, path.index):
            self.at, self.kept = (layer, sublayer, path.index), {}
        kept = self.kept
        if name in KEPT:
            kept[name] = tensor
        if name == "address_ins":
            self._means(layer, f"slots.{sublayer}", detectors.slot_shares(tensor))
        if name.endswith("edge_factors") and look.eps is not None:
            temps, seen = (
                kept.get(f"{name[:-1]}_temps"),
                past(name, tensor) if look.causal else None,
            )
            low = detectors.floor_shares(tensor, temps, look.eps, seen)
            self._means(layer, f"slots.{sublayer}", low)
        edge = kept.get(name.replace("node", "edge"))
        if name.endswith("node_factors") and edge is not None:
            self._means(layer, f"experts.{sublayer}", detectors.expert_shares(edge, tensor))
        if name == "n2_weights" and "address_ins" in kept:
            on_source = kept["address_ins"].diagonal(dim1=1, dim2=3)  # b k n
            self_edges = (on_source > detectors.HELD).any(dim=1)
            factors = kept.get("n2_edge_factors")
            self._means(layer, "self", detectors.self_referral(tensor.float(), factors, self_edges))

    def values(self, number: int) -> Iterator[Value]:
        """At the end: the means of the tables, then the findings of the detectors."""
        for layer, name in sorted(self.found, key=lambda at: (at[1] not in QUANTITIES, at)):
            for what, found in self.found[layer, name].values().items():
                quantity = f"{name}.{what}".removesuffix(".")
                if np.ndim(found) == 0:
                    yield Value(number, layer, quantity, -1, float(found))
                    continue
                for slot, value in enumerate(found):
                    if not what.startswith("at ") or not np.isnan(value):
                        yield Value(number, layer, quantity, slot, float(value))


class _Listener:
    """Passes each tapped tensor to its place, and holds what the detectors need to know."""

    digits: Int[np.ndarray, "b n"] | None = None
    detect = False

    def __init__(self, model: GraphMachine, box: Sequence[int] | None, rounds: int) -> None:
        grid, causal = model.spec.grid, model.spec.causal
        self.regions: Regions | None = None if grid is None else make_regions(grid, box)
        cells = () if grid is None else paper_cells(grid[0], grid[1], box)
        if causal and model.spec.num_nodes is not None:
            self.regions = make_spans(model.spec.num_nodes)
        targets, self.causal = model.targets, causal
        self.hops = None if targets is None else hop_distances(targets.cpu().numpy())
        self.cells = {cell_name(cell, grid[1]): cell for cell in cells} if grid else {}
        logits = model.config.address_space == "logit"
        self.eps = None if logits else model.config.address_eps  # floor of address mass
        self.layers = _Place(self)
        shown = () if model.core is None else dict.fromkeys((1, rounds))
        self.core = {number: _Place(self, reads=True) for number in shown}
        self.rounds = RoundSums()

    def listen(self, name: str, tensor: Tensor) -> None:
        if "layers." not in name:  # the answer's logits
            return
        path = TensorPath.parse(name)
        kind, _, number = path.prefix.partition(".")
        if not kind:
            self.layers.take(path, tensor)
        elif kind == "rounds" and int(number) + 1 in self.core:
            self.core[int(number) + 1].take(path, tensor)
        elif kind == "core":  # of edges that stay: the same in every round
            for place in self.core.values():
                place.take(path, tensor)

    def values(self) -> Iterator[Value]:
        for number, place in {0: self.layers, **self.core}.items():
            yield from place.values(number)
        for name, found in self.rounds.values().items():
            for number, value in enumerate(found, 1) if np.ndim(found) else [(0, found)]:
                yield Value(number, -1, f"rounds.{name}", -1, float(value))


def past(name: str, tensor: Float[Tensor, "*any"]) -> Bool[Tensor, "*pairs"] | None:
    """Which targets a source of a causal sequence sees, in the tensor's own axes; None: no targets.

    >>> past("weights", torch.zeros(1, 2, 3, 3))  # b h n m
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    axes = AXES.get(name, ())[: tensor.ndim]
    if "source" not in axes or "target" not in axes:
        return None
    n = tensor.shape[axes.index("target")]
    pairs = torch.ones(n, n, dtype=torch.bool, device=tensor.device).tril()
    between = axes.index("target") - axes.index("source") - 1
    after = len(axes) - axes.index("target") - 1
    return pairs.view(n, *[1] * between, n, *[1] * after)


def entropies(
    name: str, tensor: Float[Tensor, "*any"], mask: Bool[Tensor, "*pairs"] | None = None
) -> Float[Tensor, "*rows"]:
    """Normalised entropies of a distribution or, after a softmax, of a factor.

    `mask` has the targets that a source sees; the entropy is relative to their number.
    Paper: it does not say how the e2 factor is normalised. Here it is one distribution over
    all (n2, e2) pairs of a source and head, as in the joint softmax that it enters.
    """
    if name == "e2_factors" and tensor.ndim == 5:
        mask = None if mask is None else mask.expand(*mask.shape[:-1], tensor.shape[-1]).flatten(-2)
        tensor = tensor.flatten(-2)
    return normalised_entropy(tensor.float().softmax(dim=-1) if name in FACTORS else tensor, mask)


def contents(batch: Batch, causal: bool = False) -> Int[np.ndarray, "b n"]:
    """A label for the content of each node: its answer, and whether it was given or inferred.

    In a causal sequence, the token: an answer there is about what follows.
    """
    if causal and batch.tokens is not None:
        return batch.tokens.cpu().numpy()
    return (2 * batch.answers + ~batch.where).cpu().numpy()


def shared_hops(batch: Batch) -> Int[np.ndarray, "n n"] | None:
    """Distances along the input edges, where every graph of the batch has the same ones."""
    if batch.graph is None:
        return None
    targets = batch.graph.expand(len(batch)).targets
    return hop_distances(targets[0].numpy()) if bool((targets == targets[:1]).all()) else None


@torch.no_grad()
def collect_statistics(
    model: GraphMachine,
    batches: Iterable[Batch],
    *,
    box: Sequence[int] | None = None,
    detect: int = 64,
    rounds: int | None = None,
) -> Statistics:
    """Statistics over batches; the detectors look at the first `detect` examples.

    A recurrent core runs `rounds` times (by default as trained). It is measured in its first and in
    its last round, apart from the layers before it (`Value.round`).

    The division of labour compares what a target holds: its answer (an output index), and whether
    it was given or inferred. Padded graphs are looked at one by one, without their padding.
    Detectors of regions need a grid; in a causal sequence they are positions and spans of the past,
    and every entropy is relative to the positions that a source sees.

    >>> from graph_machine import open_model
    >>> subject = open_model("gm-4x4")
    >>> found = collect_statistics(subject.model, subject.batches(None, limit=4))
    >>> found.puzzles, len(found.by_layer("edge.sharpener_temps"))  # one mean per layer
    (4, 6)
    """
    device = next(model.parameters()).device
    number = model.check_rounds(rounds)
    listener = _Listener(model, box, number)
    look, found = listener, Statistics()
    model.eval()
    with listen(model, listener.listen):
        for batch in (part for whole in batches for part in whole.unpadded()):
            look.detect = found.detected < detect
            if model.targets is None:
                look.hops = shared_hops(batch)
            places = model.spec.output == "node" and model.spec.num_nodes is not None
            look.digits = contents(batch, model.spec.causal) if places else None
            _run(model, batch.to(device), number, listener.rounds)
            found.puzzles += len(batch)
            found.detected += len(batch) * look.detect
    if found.puzzles == 0:
        raise ConfigError("There are no puzzles to measure on.")
    found.values = list(listener.values())
    return found


def _run(model: GraphMachine, batch: Batch, rounds: int, sums: RoundSums) -> None:
    """One forward pass; of a recurrent core, the answers after every round are added up."""
    again = {} if model.core is None else {"rounds": rounds}
    if model.core is None or model.spec.output != "node" or model.spec.output_kind != "classes":
        model(**batch.inputs, **again)
        return
    logits = model(**batch.inputs, **again, keep_rounds=rounds).round_logits
    answers = torch.stack([each.argmax(dim=-1) for each in logits], dim=1)
    sums.add(*(each.cpu().numpy() for each in (answers, batch.answers, batch.where)))


@dataclass(frozen=True)
class Group:
    """The checkpoints of one condition (its seeds), and the budget that they share.

    >>> Group("gm", "4x4 board, 6 layers", seeds=(0,), found=()).title
    'gm (4x4 board, 6 layers)'
    """

    condition: str
    budget: str
    seeds: tuple[int, ...]
    found: tuple[Statistics, ...]
    grid: tuple[int, ...] | None = None
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
    def has_core(self) -> bool:
        """Whether it has a recurrent core."""
        return any(value.round for one in self.found for value in one.values)

    @property
    def kind(self) -> str:
        """The paper's row to compare it with."""
        has_edges = any("address_ins" in v.quantity for one in self.found for v in one.values)
        return "GM" if has_edges else "Transformer"


def statistics_frame(groups: Sequence[Group]) -> "DataFrame":
    """All that was measured as a pandas DataFrame: a row per model, round, layer, quantity, slot.

    `quantity` is named `edge.n2_weights`; `model` counts the models of a condition. See `Value` for
    the other columns.

    >>> one = Statistics(values=[Value(0, 3, "edge.n2_weights", -1, 0.5)])
    >>> group = Group("gm", "smoke", seeds=(0,), found=(one,))
    >>> statistics_frame([group])[["layer", "quantity", "value"]].values.tolist()
    [[3, 'edge.n2_weights', 0.5]]
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "analysis", "A table of statistics") from None
    rows = [
        (group.condition, group.budget, number, seed, *value)
        for group in groups
        for number, (seed, one) in enumerate(zip(group.seeds, group.found, strict=True))
        for value in one.values
    ]
    names = ["condition", "budget", "model", "seed", *Value._fields]
    return pandas.DataFrame(rows, columns=names)
