"""One forward pass as the page wants it: every quantity by source cell, read from a record."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graph_machine.errors import DataError
from graph_machine.records.naming import TensorPath
from graph_machine.records.record import Record

# What the page draws (static/quantities.js); edge features have no place on a board.
SHOWN = (
    "sharpener_temps", "sharpener_temps_e2", "address_ins", "address_ins_e2", "address_outs",
    "n2_edge_factor_temps", "n2_node_factor_temps", "e2_factor_temps",
    "edge_factor_temps", "node_factor_temps", "e1_weights",
    "n2_edge_factors", "n2_node_factors", "edge_factors", "node_factors",
    "e2_factors", "e2_weights", "n2_weights", "weights",
)  # fmt: skip
# Needed from the model beside these: n2's own weights of the pre-aggregated kind.
RECORDED = (*SHOWN, "e2_own_weights")
# Wanted for other cells than the source: where the edges that a referral collects point.
COLLECTED = ("address_ins", "address_ins_e2")

# Where the number of edge slots and of attention heads shows: the axis after the source's.
COUNTED = {
    "slots": ("address_outs", "address_ins", "n2_weights"),
    "heads": ("weights", "node_factors", "edge_factors"),
}


@dataclass(frozen=True)
class Sublayer:
    """One sublayer and the quantities that it has."""

    layer: int
    kind: str
    index: int
    path: str
    names: tuple[str, ...]
    recorded: dict[str, str]  # by name, its path in a recording: that of a round, or of the core
    short: str  # of its layer: `l3`, `round 2`

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "names": list(self.names)}


@dataclass(frozen=True)
class RoundAnswers:
    """What a recurrent core answers after every round; on the page, rounds follow the layers."""

    first: int  # number of the first layer of the first round
    core_layers: int
    answers: np.ndarray  # round n
    confidences: np.ndarray  # round n

    def name(self, layer: int) -> str | None:
        """`Round 3 of 16, core layer 0`, for layers of rounds."""
        number, inside = divmod(layer - self.first, self.core_layers)
        if layer < self.first:
            return None
        return f"Round {number + 1} of {len(self.answers)}, core layer {inside}"

    def short(self, layer: int) -> str:
        """`l0` before the rounds, then `round 3`, with its layer where a core has several."""
        number, inside = divmod(layer - self.first, self.core_layers)
        if layer < self.first:
            return f"l{layer}"
        return f"round {number + 1}" + (f" l{inside}" if self.core_layers > 1 else "")


@dataclass(frozen=True)
class Forward:
    """The quantities of one sample, source axis first, in half precision where they are large."""

    arrays: dict[str, np.ndarray]
    sublayers: tuple[Sublayer, ...]
    layers: int
    nodes: int
    sources: tuple[int, ...]
    tokens: np.ndarray | None = None  # n
    answers: np.ndarray | None = None  # n
    confidences: np.ndarray | None = None  # n
    solution: np.ndarray | None = None  # n, output indices
    probabilities: np.ndarray | None = None  # n outputs; a record does not hold them
    rounds: RoundAnswers | None = None  # of a recurrent model
    places: dict[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {cell: i for i, cell in enumerate(self.sources)})

    @property
    def num_bytes(self) -> int:
        return sum(values.nbytes for values in self.arrays.values())

    def count(self, axis_name: str) -> int:
        """Edge slots ('slots') or attention heads ('heads'); 0 where the model has none."""
        for name in COUNTED[axis_name]:
            for path, values in self.arrays.items():
                if path.endswith(f".{name}"):
                    return values.shape[1]
        return 0

    def collected(self, *, every: bool = False) -> dict[str, np.ndarray]:
        """Addresses of all cells at the entrance of every edge sublayer (0: not recorded).

        With `every`, those of node sublayers and the new ones as well.
        """
        return {
            f"{sublayer.path}.{name}": self._by_cell(self.arrays[f"{sublayer.path}.{name}"])
            for sublayer in self.sublayers
            if every or sublayer.kind == "edge"
            for name in (*COLLECTED, *(("address_outs",) if every else ()))
            if name in sublayer.names
        }

    def _by_cell(self, values: np.ndarray) -> np.ndarray:
        if self.sources == tuple(range(self.nodes)):
            return values
        spread = np.zeros((self.nodes, *values.shape[1:]), dtype=values.dtype)
        spread[list(self.sources)] = values
        return spread

    def of_cell(self, cell: int) -> dict[str, np.ndarray]:
        """Every quantity of one source cell."""
        if cell not in self.places:
            raise DataError(f"Source cell {cell} is not part of the recording.")
        place = self.places[cell]
        return {name: values[place] for name, values in self.arrays.items()}


def forward_of(
    record: Record,
    row: int,
    probabilities: np.ndarray | None = None,
    *,
    consume: bool = False,
) -> Forward:
    """The sample at position `row` of a record. `consume` drops what was read from its memory."""
    arrays: dict[str, np.ndarray] = {}
    rounds = _rounds_of(record, row)
    found: dict[tuple[int, str, int], list[str]] = {}
    origins: dict[tuple[int, str, int], dict[str, str]] = {}
    for path in record.paths:
        if path.name not in RECORDED:
            continue
        values = None
        for shown in _places(path, record, rounds):
            values = _source_first(record, path, row) if values is None else values
            place = (shown.layer, path.sublayer, path.index)
            origins.setdefault(place, {})[path.name] = str(path)
            if path.name != "e2_own_weights":
                found.setdefault(place, []).append(path.name)
            arrays[place_of(shown)] = values
        if consume and isinstance(record.tensors, dict):
            del record.tensors[str(path)]
    for place in {name.rpartition(".")[0] for name in arrays}:
        own = arrays.pop(f"{place}.e2_own_weights", None)
        n2_weights = arrays.get(f"{place}.n2_weights")
        if own is not None and n2_weights is not None and f"{place}.e2_weights" not in arrays:
            # Pre-aggregated: a pair's weight is that of n2, times that of e2 among n2's edges.
            pairs = n2_weights.astype(np.float32)[..., None] * own.astype(np.float32)
            arrays[f"{place}.e2_weights"] = pairs.astype(np.float16)
    sublayers = tuple(
        Sublayer(
            layer,
            kind,
            index,
            path=f"layers.{layer}.{kind}.{index}",
            names=tuple(names),
            recorded=origins[layer, kind, index],
            short=f"l{layer}" if rounds is None else rounds.short(layer),
        )
        for (layer, kind, index), names in sorted(found.items())
    )
    return Forward(
        arrays,
        sublayers,
        max([record.num_layers, *(layer + 1 for layer, _, _ in found)]),
        record.nodes,
        tuple(record.sources),
        *(None if v is None else v[row] for v in (record.tokens, record.answers)),
        confidences=None if record.confidences is None else record.confidences[row],
        solution=None if record.solutions is None else record.solutions[row],
        probabilities=probabilities,
        rounds=rounds,
    )


def _rounds_of(record: Record, row: int) -> RoundAnswers | None:
    answers, sure = record.inputs("round_answers"), record.inputs("round_confidences")
    core = (record.meta["model"].get("config") or {}).get("core_layers", 0)
    if answers is None or sure is None or not core:
        return None
    return RoundAnswers(record.num_layers, core, answers[row], sure[row])


def _places(path: TensorPath, record: Record, rounds: RoundAnswers | None) -> list[TensorPath]:
    """Where a recorded tensor is shown, as a layer of the page.

    Rounds follow the layers. What a core takes of edges that stay is shown in every round.
    """
    kind, _, number = path.prefix.partition(".")
    if rounds is not None and kind in ("rounds", "core"):
        each = [int(number)] if kind == "rounds" else range(len(rounds.answers))
        start = rounds.first + path.layer
        return [replace(path, layer=start + n * rounds.core_layers, prefix="") for n in each]
    # Of a model with several stacks the first one is shown.
    return [path] if path.prefix == min(p.prefix for p in record.paths) else []


def place_of(path: TensorPath) -> str:
    """The path without the stack's prefix."""
    return f"layers.{path.layer}.{path.sublayer}.{path.index}.{path.name}"


def _source_first(record: Record, path: TensorPath, row: int) -> np.ndarray:
    axes = record.axes[str(path)][1:]
    values = record.tensors[str(path)][row]
    if path.name == "e2_factors" and values.ndim == 4:
        # What e2 adds to the score of n2 in the joint softmax: log-sum-exp over n2's slots.
        scores = values.astype(np.float32)
        top = scores.max(axis=-1, keepdims=True)
        values = np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]
    if "source" in axes:
        values = np.moveaxis(values, axes.index("source"), 0)
    small = values.dtype == np.float16 or np.abs(values).max(initial=0) > np.finfo(np.float16).max
    return np.ascontiguousarray(values if small else values.astype(np.float16))
