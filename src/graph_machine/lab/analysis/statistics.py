"""The paper's statistics of temperatures and entropies (appendix C), streamed over a data set.

Nothing but sums is kept, so a whole test set costs no more memory than one batch. The same pass
can feed the region detectors with the first few puzzles. `TABLES` are the paper's four tables,
`PAPER` its numbers.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.lab.analysis.mechanisms import READ, Mechanisms, ReadSums, RoundSums
from graph_machine.lab.analysis.regions import (
    EdgeSums,
    FactorSums,
    hop_distances,
    make_regions,
    make_spans,
)
from graph_machine.lab.records.naming import AXES, FACTORS, TensorPath
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen
from graph_machine.ops.address import normalised_entropy

# (sublayer, tensor): one column of a table, and one line of the plot by layer.
Column = tuple[str, str]


@dataclass(frozen=True)
class Table:
    """One of the paper's four tables: title, and (heading, column) in the paper's order.

    >>> [table.key for table in TABLES]
    ['sharpener-temps', 'factor-temps', 'factor-entropies', 'address-entropies']
    """

    key: str
    title: str
    columns: tuple[tuple[str, Column], ...]


TABLES = (
    Table(
        "sharpener-temps",
        "Mean sharpener temperatures",
        (
            ("edge sublayer", ("edge", "sharpener_temps")),
            ("node sublayer", ("node", "sharpener_temps")),
        ),
    ),
    Table(
        "factor-temps",
        "Mean factor temperatures",
        (
            ("edge sublayer: n2 edge", ("edge", "n2_edge_factor_temps")),
            ("n2 node", ("edge", "n2_node_factor_temps")),
            ("e2", ("edge", "e2_factor_temps")),
            ("node sublayer: edge", ("node", "edge_factor_temps")),
            ("node", ("node", "node_factor_temps")),
        ),
    ),
    Table(
        "factor-entropies",
        "Factor mean normalised entropies",
        (
            ("edge sublayer: n2 edge", ("edge", "n2_edge_factors")),
            ("n2 node", ("edge", "n2_node_factors")),
            ("e2", ("edge", "e2_factors")),
            ("weight (n2)", ("edge", "n2_weights")),
            ("node sublayer: edge", ("node", "edge_factors")),
            ("node", ("node", "node_factors")),
            ("weight", ("node", "weights")),
        ),
    ),
    Table(
        "address-entropies",
        "Address mean normalised entropies",
        (
            ("edge sublayer: in", ("edge", "address_ins")),
            ("out", ("edge", "address_outs")),
            ("node sublayer: in", ("node", "address_ins")),
        ),
    ),
)
COLUMNS: tuple[Column, ...] = tuple(column for table in TABLES for _, column in table.columns)

PAPER_BUDGET = "9x9 board, 32 layers, 100,000 steps of 64, ten seeds"
# The paper's numbers: 9x9 boards, 32 layers, 100k steps, means over ten seeds.
PAPER: dict[str, dict[Column, float]] = {
    "GM": {
        ("edge", "sharpener_temps"): 1.050,
        ("node", "sharpener_temps"): 1.098,
        ("edge", "n2_edge_factor_temps"): 15.374,
        ("edge", "n2_node_factor_temps"): 0.287,
        ("edge", "e2_factor_temps"): 3.386,
        ("node", "edge_factor_temps"): 1.096,
        ("node", "node_factor_temps"): 0.861,
        ("edge", "n2_edge_factors"): 0.402,
        ("edge", "n2_node_factors"): 0.945,
        ("edge", "e2_factors"): 0.731,
        ("edge", "n2_weights"): 0.368,
        ("node", "edge_factors"): 0.741,
        ("node", "node_factors"): 0.891,
        ("node", "weights"): 0.652,
        ("edge", "address_ins"): 0.692,
        ("edge", "address_outs"): 0.712,
        ("node", "address_ins"): 0.715,
    },
    "Transformer": {
        ("node", "node_factor_temps"): 0.871,
        ("node", "node_factors"): 0.736,
        ("node", "weights"): 0.736,
    },
}


# A factor's logit where a source does not see the target; finite, so that sums of factors are.
IMPOSSIBLE = -1e9

# Factors whose division of labour is reported.
LABOUR = ("n2_edge_factors", "n2_node_factors", "edge_factors", "node_factors")


@dataclass
class Statistics:
    """Means by column and layer; what a model does not have is absent.

    A column is (sublayer, tensor), such as `("edge", "sharpener_temps")`.

    >>> Statistics(by_layer={("edge", "sharpener_temps"): {0: 1.0, 1: 3.0}}).mean(
    ...     ("edge", "sharpener_temps")
    ... )
    2.0
    """

    puzzles: int = 0
    by_layer: dict[Column, dict[int, float]] = field(default_factory=dict)
    edges: dict[tuple[int, str], EdgeSums] = field(default_factory=dict)  # (layer, "edge:in") ..
    labour: dict[tuple[int, Column], FactorSums] = field(default_factory=dict)
    mechanisms: Mechanisms = field(default_factory=Mechanisms)
    reading: dict[int, ReadSums] = field(default_factory=dict)  # by layer; of a core only
    rounds: RoundSums | None = None  # of a recurrent core
    # Layers of a recurrent core in its first and its last round, by round (from 1).
    core: dict[int, "Statistics"] = field(default_factory=dict)
    detected: int = 0  # puzzles that the detectors have seen

    def mean(self, column: Column) -> float | None:
        """Over all layers that have it; None where the model has no such thing."""
        values = self.by_layer.get(column)
        return sum(values.values()) / len(values) if values else None


@dataclass
class _Look:
    """What the detectors of one pass have to know; all places share it."""

    regions: dict[str, Bool[np.ndarray, "source target"]] | None
    causal: bool
    hops: Int[np.ndarray, "source target"] | None
    digits: Int[np.ndarray, "b n"] | None = None
    detect: bool = False


class _Sums:
    """Adds up what passes the taps of one place: the layers, or the core in one round."""

    def __init__(self, look: _Look, reads: bool = False) -> None:
        self.sums: dict[tuple[Column, int], float] = defaultdict(float)
        self.counts: dict[tuple[Column, int], int] = defaultdict(int)
        self.found = Statistics()
        self.look = look
        self.reads = reads

    def take(self, path: TensorPath, tensor: Tensor) -> None:
        column = (path.sublayer, path.name)
        mask = past(path.name, tensor) if self.look.causal else None
        if mask is not None and path.name in FACTORS:
            tensor = tensor.float().masked_fill(~mask, IMPOSSIBLE)
        if column in COLUMNS:
            value = tensor if path.name.endswith("_temps") else entropies(path.name, tensor, mask)
            self.sums[column, path.layer] += float(value.double().sum())
            self.counts[column, path.layer] += value.numel()
        if self.look.detect:
            self._detect(path, column, tensor)

    def _detect(self, path: TensorPath, column: Column, tensor: Tensor) -> None:
        found, look = self.found, self.look
        found.mechanisms.listen(path, tensor)
        if path.name in ("address_ins", "address_outs") and look.regions and look.hops is not None:
            place = f"{path.sublayer}:{path.name.removeprefix('address_').removesuffix('s')}"
            key = (path.layer, place)
            if key not in found.edges:
                found.edges[key] = EdgeSums(look.regions, look.hops)
            found.edges[key].hops = look.hops
            found.edges[key].add(tensor.float().cpu().numpy())
        if path.name in LABOUR and look.digits is not None:
            sums = found.labour.setdefault((path.layer, column), FactorSums())
            sums.add(tensor.float().softmax(dim=-1).cpu().numpy(), look.digits)
        if self.reads and column in READ:
            reading = found.reading.setdefault(path.layer, ReadSums(look.regions or {}))
            reading.add(path.name, tensor.float().cpu().numpy())

    def close(self) -> Statistics:
        """The means, when all has been seen."""
        for (column, layer), total in sorted(self.sums.items()):
            mean = total / self.counts[column, layer]
            self.found.by_layer.setdefault(column, {})[layer] = mean
        return self.found


class _Listener:
    """Brings what passes the taps to its place."""

    def __init__(self, model: GraphMachine, box: Sequence[int] | None, rounds: int) -> None:
        grid, causal = model.spec.grid, model.spec.causal
        regions = None if grid is None else make_regions(grid, box)
        if causal and model.spec.num_nodes is not None:
            regions = make_spans(model.spec.num_nodes)
        hops = None if model.targets is None else hop_distances(model.targets.cpu().numpy())
        self.look = _Look(regions, causal, hops)
        self.layers = _Sums(self.look)
        shown = () if model.core is None else dict.fromkeys((1, rounds))
        self.core = {number: _Sums(self.look, reads=True) for number in shown}

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
            for sums in self.core.values():
                sums.take(path, tensor)

    def close(self) -> Statistics:
        found = self.layers.close()
        found.core = {number: sums.close() for number, sums in self.core.items()}
        return found


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
    Paper: it does not say over what the e2 factor is normalised. Here it is one distribution over
    all (n2, e2) pairs of a source and head, as in the joint softmax that it enters.
    """
    if name == "e2_factors" and tensor.ndim == 5:
        mask = None if mask is None else mask.expand(*mask.shape[:-1], tensor.shape[-1]).flatten(-2)
        tensor = tensor.flatten(-2)
    return normalised_entropy(tensor.float().softmax(dim=-1) if name in FACTORS else tensor, mask)


def contents(batch: Batch, causal: bool = False) -> Int[np.ndarray, "b n"]:
    """What a node holds, as a label: its answer, and whether it was given or inferred.

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
    its last round, apart from the layers before it (`Statistics.core`).

    The division of labour compares what a target holds: its answer (an output index), and whether
    it was given or inferred. Padded graphs are looked at one by one, without their padding.
    Detectors of regions need a grid; in a causal sequence they are positions and spans of the past,
    and every entropy is relative to the positions that a source sees.

    >>> from graph_machine import open_model
    >>> subject = open_model("gm-4x4")
    >>> found = collect_statistics(subject.model, subject.batches(None, limit=4))
    >>> found.puzzles, len(found.by_layer["edge", "sharpener_temps"])  # one mean per layer
    (4, 6)
    """
    device = next(model.parameters()).device
    number = model.check_rounds(rounds)
    listener = _Listener(model, box, number)
    look, found = listener.look, listener.layers.found
    model.eval()
    with listen(model, listener.listen):
        for batch in (part for whole in batches for part in whole.unpadded()):
            look.detect = found.detected < detect
            if model.targets is None:
                look.hops = shared_hops(batch)
            places = model.spec.output == "node" and model.spec.num_nodes is not None
            look.digits = contents(batch, model.spec.causal) if places else None
            _run(model, batch.to(device), number, found)
            found.puzzles += len(batch)
            found.detected += len(batch) * look.detect
    if found.puzzles == 0:
        raise ConfigError("There are no puzzles to measure on.")
    return listener.close()


def _run(model: GraphMachine, batch: Batch, rounds: int, found: Statistics) -> None:
    """One forward pass; of a recurrent core, the answers after every round are added up."""
    again = {} if model.core is None else {"rounds": rounds}
    if model.core is None or model.spec.output != "node" or model.spec.output_kind != "classes":
        model(**batch.inputs(), **again)
        return
    logits = model(**batch.inputs(), **again, keep_rounds=rounds).round_logits
    answers = torch.stack([each.argmax(dim=-1) for each in logits], dim=1)
    found.rounds = found.rounds or RoundSums()
    found.rounds.add(*(each.cpu().numpy() for each in (answers, batch.answers, batch.where)))


def by_place(found: Sequence[Statistics]) -> list[tuple[str, list[Statistics]]]:
    """The layers, then the core round by round: the form of a row's label, and every seed's part.

    >>> [label for label, _ in by_place([Statistics(core={1: Statistics(), 8: Statistics()})])]
    ['l{}', 'core l{}, round 1', 'core l{}, round 8']
    """
    numbers = sorted({number for one in found for number in one.core})
    core = [
        (f"core l{{}}, round {n}", [one.core[n] for one in found if n in one.core]) for n in numbers
    ]
    return [("l{}", list(found)), *core]


@dataclass(frozen=True)
class Spread:
    """Mean and deviation (n - 1) over checkpoints; the deviation of a single one is None.

    >>> Spread.of([1.0, 3.0]).mean
    2.0
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Mean and deviation of some values."""
        mean = sum(values) / len(values)
        if len(values) < 2:
            return cls(mean, None, len(values))
        square = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(square), len(values))


def spread(found: Sequence[Statistics], column: Column) -> Spread | None:
    """A column over checkpoints; None where they do not have it.

    >>> column = ("edge", "sharpener_temps")
    >>> spread([Statistics(by_layer={column: {0: t}}) for t in (1.0, 3.0)], column).mean
    2.0
    """
    values = [value for one in found if (value := one.mean(column)) is not None]
    return Spread.of(values) if values else None


def spread_by_layer(found: Sequence[Statistics], column: Column) -> dict[int, Spread]:
    values: dict[int, list[float]] = {}
    for one in found:
        for layer, value in one.by_layer.get(column, {}).items():
            values.setdefault(layer, []).append(value)
    return {layer: Spread.of(known) for layer, known in sorted(values.items())}


@dataclass(frozen=True)
class Group:
    """The checkpoints of one condition (its seeds), and the budget that they share.

    >>> Group("gm", "4x4 board, 6 layers", seeds=(0,), found=()).condition
    'gm'
    """

    condition: str
    budget: str
    seeds: tuple[int, ...]
    found: tuple[Statistics, ...]
    grid: tuple[int, int] | None = None
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
    def core_rounds(self) -> list[int]:
        """Rounds of a recurrent core that were measured: the first and the last."""
        return sorted({number for one in self.found for number in one.core})

    @property
    def kind(self) -> str:
        """The paper's row that it is put beside."""
        has_edges = any("address_ins" in column for one in self.found for column in one.by_layer)
        return "GM" if has_edges else "Transformer"
