"""The recorder: listens to a model's own computation and keeps the requested tensors.

record(model, tokens)                      a Record of a GraphMachine
with recording(module) as tape: ...        the same for any module with tapped sublayers
tape.record()
"""

import ctypes
import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from graph_machine.errors import ConfigError
from graph_machine.lab.records.naming import DISTRIBUTIONS, FACTORS, TensorPath, axes_of, matches
from graph_machine.lab.records.record import FORMAT, INPUTS, VERSION, Record, marks_of
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen

# A half is stored where rounding moves no value by more than this: it does not show in a picture,
# and as a logit it changes no weight by more than a thousandth of itself.
HALF_TOLERANCE = 1e-3
TRIM_BYTES = 1024**3  # of tensors that were seen, after which free memory is given back


@dataclass
class Tape:
    """The tensors of a `recording` so far; several forward passes add up along the sample axis.

    Tensors that match `names` (paths or their last parts, with `*`) are kept. `layers` and
    `sources` (source nodes) narrow it down, except that names in `every_source` keep all source
    nodes; `half` stores float16 where it does not show, and `half_factors` all factors, too.

    >>> Tape(names=("n2_*",)).wants("layers.0.edge.0.n2_weights")
    True
    """

    names: Sequence[str] = ("*",)
    layers: Sequence[int] | None = None
    sources: Sequence[int] | None = None
    half: bool = True
    half_factors: bool = False
    every_source: Sequence[str] = ()
    nodes: int | None = field(default=None, init=False)
    seen: int = field(default=0, init=False)  # bytes of tensors since memory was given back
    parts: dict[str, list[np.ndarray]] = field(default_factory=dict, init=False)
    whole: dict[str, list[np.ndarray]] = field(default_factory=dict, init=False)

    def wants(self, path: str) -> bool:
        """Whether a tensor of this path is kept."""
        if self.layers is not None and TensorPath.parse(path).layer not in self.layers:
            return False
        return matches(path, self.names)

    def axes(self, path: str, ndim: int) -> tuple[str, ...]:
        """Axes of a kept tensor; of `every_source`, the axis of nodes is not cut."""
        axes = axes_of(path, ndim)
        if path.rpartition(".")[2] not in self.every_source:
            return axes
        return tuple("node" if axis == "source" else axis for axis in axes)

    def listen(self, path: str, tensor: Tensor) -> None:
        """The listener of `nn.taps`: looks, and changes nothing."""
        if "layers." not in path:  # of the whole model: kept beside inputs and answers, by name
            if path in self.names:
                self.whole.setdefault(path, []).append(tensor.detach().float().cpu().numpy().copy())
            return
        axes = self.axes(path, tensor.ndim)
        self.seen += tensor.nbytes
        if self.seen > TRIM_BYTES:
            self.seen = 0
            give_back()
        if self.nodes is None and "source" in axes:
            self.nodes = tensor.shape[axes.index("source")]
        if not self.wants(path):
            return
        value = tensor.detach()
        if self.sources is not None and "source" in axes:
            chosen = torch.tensor(self.sources, device=value.device)
            value = value.index_select(axes.index("source"), chosen)
        if self.half and path.rpartition(".")[2] in DISTRIBUTIONS:
            value = value.half()  # at most 1, so rounded by 0.0005 at most
        elif self.half_factors and path.rpartition(".")[2] in FACTORS:
            most = torch.finfo(torch.float16).max  # what is masked lies far below
            value = value.clamp(-most, most).half()
        elif value.dtype != torch.float64:
            value = value.float()
        # A copy: the model may change its tensor in place afterwards.
        self.parts.setdefault(path, []).append(value.cpu().numpy().copy())

    def record(self, meta: dict[str, Any] | None = None, **inputs: np.ndarray | None) -> Record:
        """Everything seen as a Record; `inputs` are arrays such as tokens or solutions."""
        if not self.parts:
            raise ConfigError(
                f"Nothing was recorded: no tensor fits {', '.join(self.names)}. 'address_ins', "
                f"'n2_weights' and 'weights' are among the names (a Transformer has no edges)."
            )
        tensors = {path: self._join(parts) for path, parts in self.parts.items()}
        samples = len(next(iter(tensors.values())))
        whole = {name: np.concatenate(parts) for name, parts in self.whole.items()}
        given = {INPUTS + name: v for name, v in (inputs | whole).items() if v is not None}
        axes = {path: self.axes(path, value.ndim) for path, value in tensors.items()}
        axes |= {name: _input_axes(name, value.ndim) for name, value in given.items()}
        axes |= {INPUTS + name: axes_of(name, value.ndim) for name, value in whole.items()}
        nodes = self.nodes or 0
        filled: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "model": {"identity": "", "name": ""},
            "data": None,
            "nodes": nodes,
            "grid": None,
            "box": None,
            "samples": list(range(samples)),
            "sources": list(range(nodes)) if self.sources is None else list(self.sources),
            "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        }
        filled |= meta or {}
        filled["axes"] = {name: list(value) for name, value in axes.items()}
        return Record(tensors | given, filled)

    def _join(self, parts: list[np.ndarray]) -> np.ndarray:
        value = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if not self.half or value.dtype == np.float16 or np.abs(value).max(initial=0) > 4:
            return value
        rounded = value.astype(np.float16)
        return rounded if np.abs(rounded - value).max(initial=0) <= HALF_TOLERANCE else value


def give_back() -> None:
    """Return free pages of the heap to the system, where the C library can.

    Copies that are kept lie between large blocks that are not, and hold them: without this, a maze
    of 31x31 in 64 rounds takes 3 GB.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _input_axes(name: str, ndim: int) -> tuple[str, ...]:
    if name.startswith(f"{INPUTS}round_"):
        return ("sample", "round", "node")
    if name == f"{INPUTS}pairs":
        return ("sample", "pair", "end")
    return ("sample", "node", "slot", "feature")[:ndim]


@contextmanager
def recording(module: nn.Module, **choice: Any) -> Iterator[Tape]:
    """Record while the block runs; `choice` is as for a `Tape`: names, layers, sources, ...

    Works on any module that contains Graph Machine sublayers.

    >>> from graph_machine import GraphMachine
    >>> model = GraphMachine.from_pretrained("gm-4x4")
    >>> with recording(model, names=("n2_weights",)) as tape:
    ...     answer = model.predict(["..3...4..4...2.."])
    >>> tape.record()["layers.0.edge.0.n2_weights"].shape  # sample, head, source, target
    (1, 8, 16, 16)
    """
    tape = Tape(**choice)
    with listen(module, tape.listen):
        yield tape


@torch.no_grad()
def record(
    model: GraphMachine,
    inputs: Batch | Int[Tensor, "b n"] | Int[np.ndarray, "b n"],
    *,
    samples: Sequence[int] | None = None,
    solutions: Int[Tensor, "b n"] | Int[np.ndarray, "b n"] | None = None,
    box: Sequence[int] | None = None,
    name: str = "",
    data: dict[str, Any] | None = None,
    task: Task | dict[str, Any] | None = None,
    batch_size: int = 16,
    rounds: int | None = None,
    **choice: Any,
) -> Record:
    """Run `model` on rows `samples` of a batch (or of tokens) and keep what happens inside.

    `choice` is as for a `Tape`: names, layers, sources, half, ...

    A recurrent core runs `rounds` times (by default as trained), and its answers are kept for
    every round. `solutions` are the right answers to tokens, as output indices; a batch brings its
    own. `task` is kept for whoever shows the recording: a task, with the regions of its examples,
    or its config alone.
    Everything is held in memory until it is saved; `estimate` says how much it will be.

    >>> from graph_machine import GraphMachine
    >>> model = GraphMachine.from_pretrained("gm-4x4")
    >>> made = record(model, torch.zeros(2, 16, dtype=torch.long), names=("address_outs",))
    >>> made["layers.0.edge.0.address_outs"].shape  # sample, source, slot, target
    (2, 16, 8, 16)
    """
    batch = inputs if isinstance(inputs, Batch) else _batch_of(inputs, solutions)
    rows = list(range(len(batch))) if samples is None else list(samples)
    nodes = batch.num_nodes
    _check_chosen(rows, len(batch), "samples")
    _check_chosen(choice.get("sources"), nodes, "sources")
    _check_chosen(
        choice.get("layers"), max(model.config.num_layers, model.config.core_layers), "layers"
    )
    most = model.check_rounds(rounds)
    device = next(model.parameters()).device
    chosen = batch[rows]
    answers, confidences = [], []  # after every round, of a model with rounds
    again = {} if model.core is None else {"rounds": rounds, "keep_rounds": most}
    was_training = model.training
    model.eval()
    try:
        with recording(model, **choice) as tape:
            for start in range(0, len(rows), batch_size):
                part = chosen[start : start + batch_size].to(device)
                out = model(**part.inputs, **again)
                each = torch.stack(out.round_logits or (out.logits,), dim=1).float()
                if model.spec.output_kind == "numbers":
                    answers.append(each.cpu().numpy())  # b round q o
                    continue
                best = each.softmax(dim=-1).max(dim=-1)  # b round q
                answers.append(best.indices.cpu().numpy().astype(np.int32))
                confidences.append(best.values.cpu().numpy())
    finally:
        model.train(was_training)
    edges = chosen.graph
    if edges is None and model.targets is not None and model.categories is not None:
        edges = model.input_graph(None, len(rows), model.targets.shape[0])
    edges = None if edges is None else edges.expand(len(rows))
    known = isinstance(inputs, Batch) or solutions is not None
    known = known and not chosen.answers.is_floating_point()
    found, sure = np.concatenate(answers), np.concatenate(confidences) if confidences else None
    by_round = model.core is not None and sure is not None
    own = task.example_regions(chosen) if isinstance(task, Task) else {}
    names = ("tokens", "node_mask", "features", "pairs")
    kept = {name: _stored(getattr(chosen, name)) for name in names}
    return tape.record(
        {
            "model": identify(model, name),
            "data": data,
            "task": task.config.to_dict() if isinstance(task, Task) else task,
            "marks": marks_of(task),
            "nodes": nodes,
            "grid": None if model.spec.grid is None else list(model.spec.grid),
            "box": None if box is None else list(box),
            "samples": rows,
        },
        solutions=_stored(chosen.answers) if known else None,
        answers=found[:, -1],
        confidences=None if sure is None else sure[:, -1],
        round_answers=found if by_round else None,
        round_confidences=sure if by_round else None,
        # Tokens alone do not say what is asked.
        where=_stored(chosen.where) if isinstance(inputs, Batch) else None,
        # Those that differ from example to example, of the task's first kind.
        regions=next((np.asarray(labels, dtype=np.int32) for labels in own.values()), None),
        **kept,
        targets=None if edges is None else _stored(edges.targets),
        categories=None if edges is None else _stored(edges.categories),
        edge_features=None if edges is None else _stored(edges.features),
    )


def _batch_of(
    tokens: Int[Tensor, "b n"] | Int[np.ndarray, "b n"],
    solutions: Int[Tensor, "b n"] | Int[np.ndarray, "b n"] | None,
) -> Batch:
    given = torch.as_tensor(np.asarray(tokens)).long()
    answers = given if solutions is None else torch.as_tensor(np.asarray(solutions)).long()
    return Batch(given, answers, torch.ones_like(given, dtype=torch.bool))


def estimate(
    model: GraphMachine, inputs: Batch | Int[Tensor, "b n"] | Int[np.ndarray, "b n"], **choice: Any
) -> int:
    """Bytes of the recording that `record` would make with the same arguments (at most).

    >>> from graph_machine import GraphMachine
    >>> model, tokens = GraphMachine.from_pretrained("gm-4x4"), torch.zeros(2, 16, dtype=torch.long)
    >>> few = estimate(model, tokens, names=("n2_weights",))
    >>> few < estimate(model, tokens)
    True
    """
    samples = choice.pop("samples", None)
    rows = list(range(len(inputs))) if samples is None else list(samples)
    _check_chosen(rows, len(inputs), "samples")
    one = record(model, inputs, samples=rows[:1], **choice)
    half = choice.get("half", True)
    size = 0
    for name, value in one.tensors.items():
        # Whether other tensors may be halves is known only when all of them have been seen.
        halved = half and name.rpartition(".")[2] in DISTRIBUTIONS
        size += value.size * (2 if halved else max(4, value.itemsize))
    return size * len(rows)


def identify(model: GraphMachine, name: str = "") -> dict[str, Any]:
    """Who was recorded: identity (a hash of the weights), name, kind, config and spec."""
    digest = hashlib.sha256(model.config.to_json().encode())
    for key, value in model.state_dict().items():
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return {
        "identity": digest.hexdigest()[:16],
        "name": name,
        "kind": "GM" if model.config.has_edges else "Transformer",
        "config": model.config.to_dict(),
        "spec": model.spec.to_dict(),
    }


def _check_chosen(chosen: Sequence[int] | None, size: int, what: str) -> None:
    if chosen is None:
        return
    if not chosen:
        raise ConfigError(f"record: no {what} were chosen.")
    bad = [number for number in chosen if not 0 <= number < size]
    if bad:
        raise ConfigError(f"record: {what} are 0 to {size - 1}, got {bad[0]}.")


def _stored(value: Tensor | None) -> np.ndarray | None:
    """As a recording keeps it: answers yes or no as bytes, whole numbers in 32 bits, floats too."""
    if value is None:
        return None
    whole = np.uint8 if value.dtype == torch.bool else np.int32
    return value.cpu().numpy().astype(np.float32 if value.is_floating_point() else whole)
