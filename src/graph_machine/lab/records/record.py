"""A recording on disk: one safetensors file whose header says what its tensors are.

Figures, detectors and explorer read only records and need no model code. Beside the recorded
tensors (by path) a file holds the inputs: `inputs.tokens`, `inputs.solutions`, `inputs.answers`,
`inputs.confidences`, `inputs.targets`, `inputs.categories` and `inputs.edge_features` (the input
graph's edges), of a recurrent model `inputs.round_answers` and `inputs.round_confidences`, and
where there are any `inputs.where` (the places that count), `inputs.regions` (of each sample's own
board) and `inputs.pairs` (of nodes that are asked about).
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from graph_machine.errors import ConfigError, DataError, GraphMachineError, did_you_mean
from graph_machine.files import atomic_path, parse_object
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.records.naming import Shorthand, TensorPath, cell_name, parse_cell
from graph_machine.lab.run_files import check
from graph_machine.lab.tasks.base import Task, task_of

Kind = Literal["made", "given", "empty"]
# Blue, orange and grey: colour-blind readers can distinguish them (Okabe and Ito, 2008).
KIND_COLOURS: dict[Kind, str] = {"made": "#0072b2", "given": "#e69f00", "empty": "#8a8a8a"}


@dataclass(frozen=True)
class SeenEdges:
    """The edges of a sample's nodes, by their slot in e1 and e2 weights.

    The first `made` slots are renewed by every referral. With `given_edges=always` the edges of
    the input graph follow, one target each, and with `empty_edge` one that points evenly at all
    nodes: these stay as they are, and before the first referral there are no made ones. With
    `given_edges=first`, input edges are what made slots begin with, and nothing follows.

    >>> targets, types = np.array([[1, -1], [0, 1]]), np.zeros((2, 2), dtype=int)
    >>> edges = SeenEdges(2, targets, types, has_empty=True)
    >>> [edges.kind(slot) for slot in range(5)]
    ['made', 'made', 'given', 'given', 'empty']
    >>> edges.name(1, 3, lambda node: f"n{node}"), edges.address(1, 2).tolist()
    ('given self', [1.0, 0.0])
    """

    made: int
    targets: Int[np.ndarray, "n g"]  # -1: no edge
    types: Int[np.ndarray, "n g"]
    has_empty: bool = False
    is_causal: bool = False
    is_grid: bool = False

    @property
    def stay(self) -> list[Kind]:
        """Kinds of edges that no referral makes."""
        given: list[Kind] = ["given"] if self.targets.shape[1] else []
        return [*given, "empty"] if self.has_empty else given

    @property
    def named_types(self) -> Int[np.ndarray, "n g"] | None:
        """Types of given edges, where they differ among edges between two nodes; on a grid, where
        they say more than the direction does."""
        steps = self.targets - np.arange(len(self.targets))[:, None]
        between = (self.targets >= 0) & (steps != 0)
        pairs = np.unique(np.stack([steps[between] * self.is_grid, self.types[between]]), axis=1)
        return self.types if len(np.unique(pairs[0])) < pairs.shape[1] else None

    def kind(self, slot: int) -> Kind:
        """What kind of edge is in a slot."""
        if slot < self.made:
            return "made"
        return "given" if slot < self.made + self.targets.shape[1] else "empty"

    def name(self, node: int, slot: int, label: Callable[[int], str]) -> str:
        """`e3`, `given n5`, `given n5 (type 2)`, `given self` or `empty`."""
        if (kind := self.kind(slot)) != "given":
            return f"e{slot}" if kind == "made" else kind
        target = int(self.targets[node, slot - self.made])
        if target in (node, -1):
            return "given self" if target == node else "none"
        types = self.named_types
        about = "" if types is None else f" (type {types[node, slot - self.made]})"
        return f"given {label(target)}{about}"

    def address(self, node: int, slot: int) -> Float[np.ndarray, "m"]:
        """Where a given or empty edge of a node points."""
        nodes = np.arange(len(self.targets))
        if self.kind(slot) == "given":
            return (nodes == self.targets[node, slot - self.made]).astype(np.float32)
        seen = nodes <= node if self.is_causal else np.ones_like(nodes)
        return (seen / seen.sum()).astype(np.float32)

    def shares(self, weights: Float[np.ndarray, "*any t"]) -> dict[Kind, float]:
        """The mean of weights over slots, by kind."""
        mean = weights.reshape(-1, weights.shape[-1]).mean(axis=0)
        found: dict[Kind, float] = {"made": 0.0, "given": 0.0, "empty": 0.0}
        for slot, weight in enumerate(mean):
            found[self.kind(slot)] += float(weight)
        return found

    def to_json(self) -> dict[str, Any] | None:
        """For the explorer's page; None where all edges are made ones."""
        if not self.stay:
            return None
        types = self.named_types
        return {
            "targets": self.targets.tolist(),
            "types": None if types is None else types.tolist(),
            "hasEmpty": self.has_empty,
        }


FORMAT = "graph-machine-record"
VERSION = 1
INPUTS = "inputs."
# Space that a recording leaves free on the disk.
SPARE_BYTES = 512 * 1024**2

# Kinds of numbers that are written, as safetensors calls them.
DTYPES = ("F16", "F32", "F64", "I32", "I64", "U8", "BOOL")


class _OnDisk(Mapping[str, np.ndarray]):
    """Tensors of a file, each read on access: a record may be larger than memory."""

    def __init__(self, path: Path) -> None:
        self.handle = safe_open(path, framework="np")
        self.names = sorted(self.handle.keys())
        self.num_bytes = path.stat().st_size

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise KeyError(name)
        return self.handle.get_tensor(name)

    def row(self, name: str, row: int) -> np.ndarray:
        """One entry of the first axis, without reading the others."""
        return self.handle.get_slice(name)[row : row + 1][0]

    def described(self) -> dict[str, tuple[str, list[int]]]:
        """Kind of numbers and shape of every tensor, without reading it."""
        slices = {name: self.handle.get_slice(name) for name in self.names}
        return {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Record:
    """What happened inside a model: `tensors` by path, their `axes`, and `meta`.

    `meta` holds model (identity, name, config, spec, kind), data (identity, source), task, marks
    (characters that pictures draw), nodes, grid, box, samples (numbers in the data), sources
    (recorded source nodes), axes and versions.

    >>> import torch
    >>> from graph_machine import GraphMachine
    >>> from graph_machine.lab.records import record
    >>> made = record(GraphMachine.from_pretrained("gm-4x4"), torch.zeros(1, 16, dtype=torch.long))
    >>> made.save("gm.rec.safetensors").name
    'gm.rec.safetensors'
    >>> Record.load("gm.rec.safetensors").find("s0l1r2", "r2c2").shape  # weights over targets
    (16,)
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], meta: dict[str, Any]) -> None:
        self.tensors = tensors
        self.meta = meta
        self.axes: dict[str, tuple[str, ...]] = {
            name: tuple(axes) for name, axes in meta["axes"].items()
        }
        model = meta["model"]
        self.name = str(model.get("name") or model.get("kind") or model["identity"])
        self.config: dict[str, Any] = model.get("config") or {}
        self.spec: dict[str, Any] = model.get("spec") or {}  # empty for a user's own module
        self.causal = bool(self.spec.get("causal"))
        self.task_name: str | None = (meta.get("task") or {}).get("name")
        self.nodes = int(meta["nodes"])
        self.grid = _pair(meta.get("grid"))  # rows and columns, where the nodes form a grid
        self.box = _pair(meta.get("box"))  # the same of the blocks that the grid falls into
        self.samples: list[int] = list(meta["samples"])  # rows of the data
        self.sources: list[int] = list(meta["sources"])  # source nodes
        # What went in and came out, (sample, node); None where it is not known.
        self.tokens = self.inputs("tokens")
        self.solutions = self.inputs("solutions")  # output indices
        self.answers = self.inputs("answers")  # the model's, likewise
        self.confidences = self.inputs("confidences")  # probability of each answer
        self.where = self._by_node("where")  # 1 where an answer counts
        self.regions = self._by_node("regions")  # of each cell, where samples have their own

    def inputs(self, name: str) -> np.ndarray | None:
        """One of the stored inputs, or None."""
        return self.tensors.get(INPUTS + name)

    def input_row(self, name: str, sample: int) -> np.ndarray | None:
        """The same of one sample."""
        found = self.inputs(name)
        return None if found is None else found[self.row(sample)]

    def _by_node(self, name: str) -> np.ndarray | None:
        found = self.inputs(name)
        fits = found is not None and found.shape == (len(self.samples), self.nodes)
        return found if fits else None

    # What was recorded.

    @property
    def paths(self) -> list[TensorPath]:
        """The recorded tensors, in the order in which the model makes its sublayers."""
        return sorted(TensorPath.parse(name) for name in self.axes if not name.startswith(INPUTS))

    @property
    def layer_paths(self) -> list[TensorPath]:
        """Those of the layers, without the rounds of a recurrent core."""
        return [p for p in self.paths if p.prefix.partition(".")[0] not in ("rounds", "core")]

    @property
    def num_layers(self) -> int:
        """Layers of the model, recorded or not (for a user's own module: those seen)."""
        return self.config.get("num_layers") or 1 + max((p.layer for p in self.paths), default=-1)

    @property
    def has_edges(self) -> bool:
        """A Transformer has none: its edge tensors are absent, not zero."""
        return any(path.name.startswith("address_") for path in self.paths)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Characters that are drawn, not written: as a `filled` cell, a `dot` or `empty`."""
        found = self.meta.get("marks")  # older recordings name their task only
        return marks_of(self.meta.get("task")) if found is None else found

    @property
    def graph_is_given(self) -> bool:
        """Whether every example has its own graph, on nodes without a grid."""
        return self.grid is None and self.spec.get("graph") == "given"

    def edges(self, sample: int, slots: int | None = None) -> SeenEdges:
        """Which edges a sublayer sees of the nodes of a sample, slot by slot: `slots` is the size
        of its e1 or e2 weights (None: made slots as in the config)."""
        targets, types = self.inputs("targets"), self.inputs("categories")
        if self.config.get("given_edges") != "always" or targets is None or types is None:
            targets = types = np.zeros((len(self.samples), self.nodes, 0), dtype=np.int32)
        row, has_empty = self.row(sample), bool(self.config.get("empty_edge"))
        made = self.config.get("num_edges", 0)
        return SeenEdges(
            made if slots is None else slots - targets.shape[-1] - has_empty,
            targets[row],
            types[row],
            has_empty,
            is_causal=self.causal,
            is_grid=self.grid is not None,
        )

    # Reading.

    def __contains__(self, name: str) -> bool:
        return name in self.axes

    def __getitem__(self, name: str) -> np.ndarray:
        """A tensor by path, in float32 (files may hold halves)."""
        if name not in self.axes:
            hint = did_you_mean(name, self.axes)
            raise DataError(f"The recording of {self.name} has no '{name}'.{hint}")
        return _widened(self.tensors[name])

    def of_sample(self, name: str, sample: int) -> np.ndarray:
        """One sample of a tensor, in float32 and without the sample axis."""
        row = self.row(sample)
        if name in self.axes and isinstance(self.tensors, _OnDisk):
            return _widened(self.tensors.row(name, row))
        return self[name][row]

    def row(self, sample: int) -> int:
        """Position of a sample on the sample axis."""
        if sample not in self.samples:
            raise DataError(f"Sample {sample} was not recorded; recorded: {_spans(self.samples)}.")
        return self.samples.index(sample)

    def column(self, source: int | str) -> int:
        """Position of a source node on the source axis; cells may be named (`r2c2`)."""
        index = parse_cell(source, self.grid or (1, self.nodes))
        if index not in self.sources:
            known = ", ".join(self.label(s) for s in self.sources[:12])
            raise DataError(f"Source {self.label(index)} was not recorded; recorded: {known}.")
        return self.sources.index(index)

    def label(self, node: int) -> str:
        """`r2c2` on a grid, `n17` elsewhere: on graphs, and in sequences."""
        if self.grid is None or self.grid[0] == 1:
            return f"n{node}"
        return cell_name(node, self.grid[1])

    def find(
        self, short: str | Shorthand, source: int | str, *, name: str | None = None, sample: int = 0
    ) -> Float[np.ndarray, "*rest"]:
        """The values of the paper's shorthand for one source cell: usually weights over targets.

        `name` picks another tensor of that head, such as e1_weights (over slots) or e2_weights
        (over targets and their slots).
        """
        short = Shorthand.parse(short) if isinstance(short, str) else short
        path = short.path(name)
        value = self.of_sample(path, sample if short.sample is None else short.sample)
        axes = self.axes[path][1:]
        wanted = {"source": self.column(source), "head" if "head" in axes else "slot": short.index}
        for axis, position in wanted.items():
            if axis in axes and position >= value.shape[axes.index(axis)]:
                size = value.shape[axes.index(axis)]
                raise ConfigError(f"{short}: {path} has {axis} 0 to {size - 1}, not {position}.")
        return value[tuple(wanted.get(axis, slice(None)) for axis in axes)]

    # Files.

    @property
    def num_bytes(self) -> int:
        """Size of all tensors."""
        if isinstance(self.tensors, _OnDisk):
            return self.tensors.num_bytes
        return sum(value.nbytes for value in self.tensors.values())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record; refuses to fill the disk."""
        path = Path(path)
        check_space(path, self.num_bytes)
        tensors = {name: np.ascontiguousarray(value) for name, value in self.tensors.items()}
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, metadata={FORMAT: json.dumps(self.meta)})
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Record":
        """Open a record; tensors are read on access."""
        path = Path(path)
        if not path.is_file():
            raise DataError(f"There is no such recording: {path}")
        try:
            tensors = _OnDisk(path)
            header = tensors.handle.metadata() or {}
        except (SafetensorError, OSError, ValueError) as error:
            raise DataError(f"The recording is damaged or cut short ({error}): {path}") from None
        if FORMAT not in header:
            raise DataError(f"Not a recording (its header has no {FORMAT}): {path}")
        meta = parse_object(header[FORMAT], "The recording's header", path, DataError)
        if meta.get("version") != VERSION:
            raise DataError(
                f"The recording has format version {meta.get('version')}, this program reads "
                f"{VERSION}; record it again: {path}"
            )
        try:
            check_header(meta, tensors.described())
        except DataError as error:
            raise DataError(f"The recording is damaged ({error}): {path}") from None
        return cls(tensors, meta)

    def __repr__(self) -> str:
        return (
            f"Record({self.name}, {len(self.paths)} tensors, samples {_spans(self.samples)}, "
            f"{len(self.sources)} sources, {self.num_bytes / 1e6:.1f} MB)"
        )


def _pair(found: list[int] | None) -> tuple[int, int] | None:
    return None if found is None else (int(found[0]), int(found[1]))


def _widened(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32) if value.dtype == np.float16 else value


def check_space(path: Path, num_bytes: int) -> None:
    """Raise where a file of this size would leave less than `SPARE_BYTES` on its disk."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if num_bytes + SPARE_BYTES > free:
        raise DataError(
            f"The recording would take {num_bytes / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are free "
            f"({SPARE_BYTES / 1e6:,.0f} MB must stay free); choose fewer names, layers, samples or "
            f"sources: {path}"
        )


def _spans(numbers: list[int]) -> str:
    """`0-15` for a run of numbers, else their list, shortened."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}-{numbers[-1]}"
    shown = ",".join(str(number) for number in numbers[:12])
    return shown + (",..." if len(numbers) > 12 else "")


def marks_of(task: Task | dict[str, Any] | None) -> dict[str, str]:
    """`Task.marks` of a task or of its config, for the header."""
    if isinstance(task, dict):
        try:
            task = task_of(TaskConfig.from_dict(task))
        except ConfigError:  # a user's own task, which is not here
            task = None
    return {} if task is None else {text: mark.drawn for text, mark in task.marks.items()}


def refuse_rounds(rounds: int | None, name: object) -> None:
    """A recording keeps the rounds that it was made with; another number is a mistake."""
    if rounds is not None:
        raise ConfigError(f"rounds: choose them when recording (record --rounds), not for {name}.")


# The header, checked against its tensors: readers may rely on what it says.
HEADER = {
    "axes": dict, "nodes": int, "samples": list, "sources": list, "grid?": list | None,
    "box?": list | None, "model": dict,
}  # fmt: skip


def check_header(meta: dict[str, Any], tensors: Mapping[str, tuple[str, list[int]]]) -> None:
    """Raise DataError where `meta` does not describe `tensors` (name -> dtype and shape)."""
    check("its header", meta, HEADER)
    check("its model", meta["model"], {"identity": str, "config?": dict | None})
    check("its config", meta["model"].get("config") or {}, {"num_layers?": int})
    axes, nodes, grid = meta["axes"], meta["nodes"], meta.get("grid")
    if set(axes) != set(tensors):
        raise DataError(f"header and tensors differ, {sorted(set(axes) ^ set(tensors))[0]}")
    most = {"samples": math.inf, "sources": nodes, "grid": nodes + 1, "box": nodes + 1}
    for name, below in most.items():
        for number in meta.get(name) or []:
            if type(number) is not int or not 0 <= number < below:
                raise DataError(f"{name} should be whole numbers below {below}, got {number!r}")
    if any(len(meta.get(name) or (1, 1)) != 2 for name in ("grid", "box")):
        raise DataError("grid and box should be two numbers")
    if grid is not None and grid[0] * grid[1] != nodes:
        raise DataError(f"the grid should have {nodes} cells")
    sizes = {"sample": len(meta["samples"]), "source": len(meta["sources"])}
    for name, (dtype, shape) in tensors.items():
        _check_tensor(name, axes[name], dtype, shape, sizes)


def _check_tensor(
    name: str, axes: Any, dtype: str, shape: list[int], sizes: Mapping[str, int]
) -> None:
    if not isinstance(axes, list) or len(axes) != len(shape):
        raise DataError(f"{name} has other axes than its tensor")
    for axis, size in zip(axes, shape):
        if not isinstance(axis, str) or sizes.get(axis, size) != size:
            raise DataError(f"{name} has a size of {size} on the axis {axis}")
    if dtype not in DTYPES:
        raise DataError(f"{name} holds numbers of kind {dtype}")
    if not name.startswith(INPUTS):
        try:
            TensorPath.parse(name)
        except (GraphMachineError, ValueError):
            raise DataError(f"{name} is not the path of a tensor") from None
