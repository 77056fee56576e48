"""One forward pass as the page wants it: every quantity by source node, read from a record; and
its way to the page, as safetensors (`static/tensors.js` reads them)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy

from graph_machine.errors import DataError
from graph_machine.lab.records.naming import TensorPath
from graph_machine.lab.records.record import Record, SeenEdges

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
# Wanted for other nodes than the source: where the edges that a referral collects point.
COLLECTED = ("address_ins", "address_ins_e2")
Precision = Literal["f2", "u8"]
HALF_MAX = float(np.finfo(np.float16).max)
STEPS = ".steps"  # after the name of a tensor in 255 steps: least value and step of each row

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
    short: str  # of its layer: `l3`, `round 2`
    # By name of a quantity, its path in a recording: that of a round, or of the core.
    recorded: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"layers.{self.layer}.{self.kind}.{self.index}"

    @property
    def names(self) -> list[str]:
        """The quantities that the page shows."""
        return [name for name in self.recorded if name in SHOWN]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": self.path, "names": self.names}


class RoundAnswers(NamedTuple):
    """The answers of a recurrent core after every round; on the page, rounds follow the layers."""

    first: int  # number of the first layer of the first round
    core_layers: int
    answers: np.ndarray  # round n
    confidences: np.ndarray  # round n

    def names(self, layer: int) -> tuple[str | None, str]:
        """`Round 3 of 16, core layer 0` and `round 3`, with its layer where a core has several;
        None and `l0` before the rounds."""
        number, inside = divmod(layer - self.first, self.core_layers)
        if layer < self.first:
            return None, f"l{layer}"
        short = f"round {number + 1}" + (f" l{inside}" if self.core_layers > 1 else "")
        return f"Round {number + 1} of {len(self.answers)}, core layer {inside}", short


@dataclass(frozen=True)
class Forward:
    """The quantities of one sample, source axis first, in half precision where they are large."""

    arrays: dict[str, np.ndarray]
    sublayers: tuple[Sublayer, ...]
    layers: int
    nodes: int
    sources: tuple[int, ...]  # nodes whose quantities are held
    edges: SeenEdges
    answers: np.ndarray | None = None  # n
    confidences: np.ndarray | None = None  # n
    probabilities: np.ndarray | None = None  # n outputs; a record does not hold them
    rounds: RoundAnswers | None = None  # of a recurrent model
    # By path, addresses of all nodes, where `sources` are only some of them.
    addresses: dict[str, np.ndarray] = field(default_factory=dict)
    is_block: bool = False  # other sources can be had by running the model again

    @property
    def num_bytes(self) -> int:
        """Memory that the quantities take."""
        # What a core takes of edges that stay is one array under the name of every round.
        held = (*self.arrays.values(), *self.addresses.values())
        return sum({id(values): values.nbytes for values in held}.values())

    @property
    def page_bytes(self) -> int:
        """The same for a page, which has the quantities of all nodes, by every name."""
        held = sum(values.nbytes for values in self.arrays.values())
        return held * self.nodes // max(1, len(self.sources))

    def count(self, axis_name: str) -> int:
        """Edge slots ('slots') or attention heads ('heads'); 0 where the model has none."""
        found = (
            values.shape[1]
            for name in COUNTED[axis_name]
            for path, values in self.arrays.items()
            if path.endswith(f".{name}")
        )
        return next(found, 0)

    def collected(self, *, every: bool = False) -> dict[str, np.ndarray]:
        """Addresses of all nodes at the entrance of every edge sublayer (0: not recorded).

        With `every`, those of node sublayers and the new ones as well. Empty where they take too
        much memory.
        """
        names = (*COLLECTED, "address_outs") if every else COLLECTED
        wanted = [
            f"{sublayer.path}.{name}"
            for sublayer in self.sublayers
            if every or sublayer.kind == "edge"
            for name in names
            if name in sublayer.recorded
        ]
        if self.is_block:
            return {path: self.addresses[path] for path in wanted if path in self.addresses}
        if self.sources == tuple(range(self.nodes)):
            return {path: self.arrays[path] for path in wanted}
        found = {}
        for path in wanted:
            values = self.arrays[path]
            found[path] = np.zeros((self.nodes, *values.shape[1:]), dtype=values.dtype)
            found[path][list(self.sources)] = values
        return found

    def of_node(self, node: int) -> dict[str, np.ndarray]:
        """Every quantity of one source node."""
        if node not in self.sources:
            raise DataError(f"Source node {node} is not part of the recording.")
        place = self.sources.index(node)
        return {name: values[place] for name, values in self.arrays.items()}


def forward_of(
    record: Record, row: int, probabilities: np.ndarray | None = None, *, consume: bool = False
) -> Forward:
    """The sample at position `row` of a record. `consume` frees tensors once they are read."""
    arrays: dict[str, np.ndarray] = {}
    addresses: dict[str, np.ndarray] = {}
    by_round = [record.inputs(f"round_{name}") for name in ("answers", "confidences")]
    core, rounds = record.config.get("core_layers", 0), None
    if core and by_round[0] is not None and by_round[1] is not None:
        rounds = RoundAnswers(record.num_layers, core, by_round[0][row], by_round[1][row])
    first = min((path.prefix for path in record.paths), default="")
    sublayers: dict[tuple[int, str, int], Sublayer] = {}
    for path in record.paths:
        layers = _layers(path, first, rounds) if path.name in RECORDED else []
        values = _source_first(record, path, row) if layers else np.zeros(0)
        held = values
        if "node" in record.axes[str(path)]:  # of all nodes, sources or not
            held = values[list(record.sources)]
        for layer in layers:
            place = (layer, path.sublayer, path.index)
            short = f"l{layer}" if rounds is None else rounds.names(layer)[1]
            sublayer = sublayers.setdefault(place, Sublayer(*place, short))
            sublayer.recorded[path.name] = str(path)
            arrays[f"{sublayer.path}.{path.name}"] = held
            if held is not values:
                addresses[f"{sublayer.path}.{path.name}"] = values
        if consume and isinstance(record.tensors, dict) and path.name in RECORDED:
            del record.tensors[str(path)]
    for path in [sublayer.path for sublayer in sublayers.values()]:
        own, n2 = arrays.pop(f"{path}.e2_own_weights", None), arrays.get(f"{path}.n2_weights")
        if own is not None and n2 is not None and f"{path}.e2_weights" not in arrays:
            # Pre-aggregated: a pair's weight is that of n2, times that of e2 among n2's edges.
            pairs = n2.astype(np.float32)[..., None] * own.astype(np.float32)
            arrays[f"{path}.e2_weights"] = pairs.astype(np.float16)
    return Forward(
        arrays,
        tuple(sublayers[place] for place in sorted(sublayers)),
        max([record.num_layers, *(layer + 1 for layer, _, _ in sublayers)]),
        record.nodes,
        tuple(record.sources),
        record.edges(record.samples[row]),
        answers=None if record.answers is None else record.answers[row],
        confidences=None if record.confidences is None else record.confidences[row],
        probabilities=probabilities,
        rounds=rounds,
        addresses=addresses,
        is_block=consume and len(record.sources) < record.nodes,
    )


def _layers(path: TensorPath, first: str, rounds: RoundAnswers | None) -> list[int]:
    """The layers of the page that show a recorded tensor; `first` is the prefix of the first stack.

    Rounds follow the layers. Quantities of edges that stay are shown in every round of the core.
    """
    kind, _, number = path.prefix.partition(".")
    if rounds is not None and kind in ("rounds", "core"):
        each = [int(number)] if kind == "rounds" else range(len(rounds.answers))
        return [rounds.first + path.layer + n * rounds.core_layers for n in each]
    # Of a model with several stacks the first one is shown.
    return [path.layer] if path.prefix == first else []


def _source_first(record: Record, path: TensorPath, row: int) -> np.ndarray:
    axes = record.axes[str(path)][1:]
    values = record.tensors[str(path)][row]
    if path.name == "e2_factors" and values.ndim == 4:
        # What e2 adds to the score of n2 in the joint softmax: log-sum-exp over n2's slots.
        scores = values.astype(np.float32)
        top = scores.max(axis=-1, keepdims=True)
        values = np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]
    for axis in {"source", "node"}.intersection(axes):
        values = np.moveaxis(values, axes.index(axis), 0)
    small = values.dtype == np.float16 or np.abs(values).max(initial=0) > HALF_MAX
    return np.ascontiguousarray(values if small else values.astype(np.float16))


def start_layer(forward: Forward, node: int) -> int:
    """The layer to begin with: the one whose new edges of a node point most clearly at nodes that
    the input edges do not reach; without edges, the one whose attention is most concentrated."""
    reach, heed = dict[int, float](), dict[int, float]()
    near = np.isin(np.arange(forward.nodes), forward.edges.targets[node])  # by input edges
    is_first = not forward.edges.stay  # then they are what made slots begin with
    found = forward.of_node(node) if node in forward.sources else {}
    for sublayer in forward.sublayers:
        kinds = ("address_ins", "address_outs", "weights")
        values = [found.get(f"{sublayer.path}.{name}") for name in kinds]
        ins, outs, weights = (None if x is None else x.astype(np.float32) for x in values)
        if ins is not None and is_first:
            near, is_first = (ins >= 0.5).any(axis=0), False
        if outs is not None and not is_first:  # k n
            entropy = -(outs * np.log(np.maximum(outs, 1e-9))).sum(axis=-1)
            sure = 1 - entropy / np.log(max(2, forward.nodes))
            far = float((outs[:, ~near].sum(axis=-1) * sure).mean())
            reach[sublayer.layer] = max(reach.get(sublayer.layer, 0.0), far)
        elif weights is not None:
            heed[sublayer.layer] = float(weights.max(axis=-1).mean())
    scores = reach or heed
    return max(scores, key=lambda layer: (scores[layer], -layer), default=0)


def pack(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], precision: Precision = "f2"
) -> bytes:
    """Header and arrays of any shape, such as (n, k, m), as safetensors.

    Whole numbers are stored as int32, others in half precision. With a precision of `u8` they have
    255 steps between the least and the greatest value of each row (last axis).

    >>> answer = pack({"title": "gm"}, {"weights": np.array([0.5, 0.25])})
    >>> safetensors.numpy.load(answer)["weights"]
    array([0.5 , 0.25], dtype=float16)
    """
    tensors: dict[str, np.ndarray] = {}
    for name, values in arrays.items():
        if values.dtype.kind in "iub":
            tensors[name] = np.array(values, dtype=np.int32, order="C")
            continue
        rows = np.clip(values, -HALF_MAX, HALF_MAX)
        if precision == "f2" or not values.ndim or not values.size:
            tensors[name] = np.array(rows, dtype=np.float16, order="C")
            continue
        rows = np.array(rows, dtype=np.float32, order="C")
        least = rows.min(axis=-1, keepdims=True)
        step = (rows.max(axis=-1, keepdims=True) - least) / 255
        scaled = np.divide(rows - least, step, out=np.zeros_like(rows), where=step > 0)
        tensors[name] = np.rint(scaled).astype(np.uint8)
        tensors[name + STEPS] = np.concatenate([least, step], axis=-1)
    return safetensors.numpy.save(tensors, {"header": json.dumps(header, separators=(",", ":"))})


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `pack`: arrays such as (n, k, m), those in steps as float32.

    >>> unpack(pack({"title": "gm"}, {}))[0]["title"]
    'gm'
    """
    tensors = safetensors.numpy.load(data)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["header"])
    arrays = {name: values for name, values in tensors.items() if not name.endswith(STEPS)}
    for name, values in arrays.items():
        if values.dtype == np.uint8:
            least, step = np.split(tensors[name + STEPS], 2, axis=-1)
            arrays[name] = least + step * values
    return header, arrays
