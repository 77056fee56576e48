"""The paper's statistics of temperatures and entropies (appendix C), streamed over a data set.

Nothing but sums is kept, so a whole test set costs no more memory than one batch. The same pass
can feed the region detectors with the first few puzzles.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.analysis.mechanisms import Mechanisms, RoundSums
from graph_machine.analysis.regions import (
    EdgeSums,
    FactorSums,
    hop_distances,
    make_regions,
    make_spans,
)
from graph_machine.errors import ConfigError
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen
from graph_machine.ops.address import normalised_entropy
from graph_machine.records.naming import AXES, FACTORS, TensorPath
from graph_machine.tasks.batch import Batch

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

# Factors whose division of labour is told.
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
    rounds: RoundSums | None = None  # of a recurrent core
    detected: int = 0  # puzzles that the detectors have seen

    def mean(self, column: Column) -> float | None:
        """Over all layers that have it; None where the model has no such thing."""
        values = self.by_layer.get(column)
        return sum(values.values()) / len(values) if values else None


class _Sums:
    """The listener: adds up what passes the taps of one forward pass after another."""

    def __init__(self, model: GraphMachine, box: Sequence[int] | None) -> None:
        self.sums: dict[tuple[Column, int], float] = defaultdict(float)
        self.counts: dict[tuple[Column, int], int] = defaultdict(int)
        self.found = Statistics()
        self.detect = False
        self.digits: np.ndarray | None = None
        grid, self.causal = model.spec.grid, model.spec.causal
        self.regions = None if grid is None else make_regions(grid, box)
        if self.causal and model.spec.num_nodes is not None:
            self.regions = make_spans(model.spec.num_nodes)
        self.hops = None if model.targets is None else hop_distances(model.targets.cpu().numpy())

    def listen(self, name: str, tensor: Tensor) -> None:
        # Of layers only: not the answer's logits, nor the rounds of a recurrent core.
        if not name.startswith("layers."):
            return
        path = TensorPath.parse(name)
        column = (path.sublayer, path.name)
        mask = past(path.name, tensor) if self.causal else None
        if mask is not None and path.name in FACTORS:
            tensor = tensor.float().masked_fill(~mask, IMPOSSIBLE)
        if column in COLUMNS:
            value = tensor if path.name.endswith("_temps") else entropies(path.name, tensor, mask)
            self.sums[column, path.layer] += float(value.double().sum())
            self.counts[column, path.layer] += value.numel()
        if self.detect:
            self._detect(path, column, tensor)

    def _detect(self, path: TensorPath, column: Column, tensor: Tensor) -> None:
        found = self.found
        found.mechanisms.listen(path, tensor)
        if path.name in ("address_ins", "address_outs") and self.regions and self.hops is not None:
            place = f"{path.sublayer}:{path.name.removeprefix('address_').removesuffix('s')}"
            key = (path.layer, place)
            if key not in found.edges:
                found.edges[key] = EdgeSums(self.regions, self.hops)
            found.edges[key].hops = self.hops
            found.edges[key].add(tensor.float().cpu().numpy())
        if path.name in LABOUR and self.digits is not None:
            sums = found.labour.setdefault((path.layer, column), FactorSums())
            sums.add(tensor.float().softmax(dim=-1).cpu().numpy(), self.digits)


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
) -> Statistics:
    """Statistics over batches; the detectors look at the first `detect` examples.

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
    sums = _Sums(model, box)
    found = sums.found
    model.eval()
    with listen(model, sums.listen):
        for batch in (part for whole in batches for part in whole.unpadded()):
            sums.detect = found.detected < detect
            if model.targets is None:
                sums.hops = shared_hops(batch)
            places = model.spec.output == "node" and model.spec.num_nodes is not None
            sums.digits = contents(batch, model.spec.causal) if places else None
            _run(model, batch.to(device), found)
            found.puzzles += len(batch)
            found.detected += len(batch) * sums.detect
    if found.puzzles == 0:
        raise ConfigError("There are no puzzles to measure on.")
    for (column, layer), total in sorted(sums.sums.items()):
        mean = total / sums.counts[column, layer]
        found.by_layer.setdefault(column, {})[layer] = mean
    return found


def _run(model: GraphMachine, batch: Batch, found: Statistics) -> None:
    """One forward pass; of a recurrent core, the answers after every round are added up."""
    if model.core is None or model.spec.output != "node" or model.spec.output_kind != "classes":
        model(**batch.inputs())
        return
    logits = model(**batch.inputs(), keep_rounds=model.config.rounds).round_logits
    answers = torch.stack([each.argmax(dim=-1) for each in logits], dim=1)
    found.rounds = found.rounds or RoundSums()
    found.rounds.add(*(each.cpu().numpy() for each in (answers, batch.answers, batch.where)))


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
    layers = sorted({layer for one in found for layer in one.by_layer.get(column, {})})
    return {
        layer: Spread.of(
            [one.by_layer[column][layer] for one in found if layer in one.by_layer.get(column, {})]
        )
        for layer in layers
    }
