"""The cost of a run, measured on a few of its own steps."""

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graph_machine.errors import TrainingError, count_of
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.training.devices import precision_of
from graph_machine.lab.training.log import duration
from graph_machine.lab.training.schedule import own_random_state
from graph_machine.lab.training.trainer import Trainer
from graph_machine.machine import free_memory
from graph_machine.models.counting import count_parameters, first_layers, period
from graph_machine.ops import native

MIB = 2**20
PATIENCE = 20.0
WORTH_MEASURING = 100  # steps of a run for which the number of threads is chosen by measuring
FEW = 8  # examples of an estimate
SLOW = 0.5  # seconds of its steps after which it is enough
PER_PARAMETER = 4 * 4  # bytes: itself, its gradient and Adam's two moments, in float32


@dataclass(frozen=True)
class Cost:
    """Bytes and seconds of one process."""

    parameters: int
    weights_bytes: int
    activations_bytes: int  # kept from the forward for the backward pass
    seconds_per_step: float
    steps: int
    device: str
    precision: str

    @classmethod
    def of(
        cls,
        config: ExperimentConfig,
        device: torch.device,
        parameters: int,
        kept: int,
        seconds: float,
    ) -> "Cost":
        steps, precision = config.train.steps, precision_of(config.train, device)
        weights = PER_PARAMETER * parameters
        return cls(parameters, weights, kept, seconds, steps, str(device), precision)

    @property
    def memory_bytes(self) -> int:
        return self.weights_bytes + self.activations_bytes

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"memory_bytes": self.memory_bytes}

    def __str__(self) -> str:
        whole = self.seconds_per_step * self.steps
        return "\n".join(
            [
                f"parameters   {self.parameters:,}",
                f"memory       about {self.memory_bytes / MIB:,.0f} MiB: "
                f"{self.weights_bytes / MIB:,.0f} weights, gradients and Adam, "
                f"{self.activations_bytes / MIB:,.0f} activations (temporaries come on top)",
                f"time         {self.seconds_per_step:.3f} s per step on {self.device} in "
                f"{self.precision}, {duration(whole)} for {count_of(self.steps, 'steps')} "
                "without evaluation",
            ]
        )


def measure_cost(
    config: ExperimentConfig, task: Task, *, seed: int, device: torch.device, steps: int = 3
) -> Cost:
    """Take `steps` real steps after a first one that warms up; nothing is written anywhere.

    Where steps are slow, those that begin within `PATIENCE` seconds have to do, at least one.
    """
    with own_random_state(device):
        trainer = Trainer(config, task, seed=seed, device=device)
        activations = _kept_bytes(trainer, lambda: trainer.step(0))
        start = time.perf_counter()
        taken = 0
        while taken < steps and (not taken or time.perf_counter() - start < PATIENCE):
            taken += 1
            trainer.step(taken)
        seconds = (time.perf_counter() - start) / taken
    return Cost.of(config, device, trainer.model.num_parameters, activations, seconds)


@contextmanager
def best_threads(
    config: ExperimentConfig,
    task: Task,
    *,
    seed: int,
    device: torch.device,
    recorded: object = None,
) -> Iterator[None]:
    """During the block, torch uses one thread or its usual number, whichever takes shorter steps.

    Threads wait for each other within every operation, so on a machine with busy cores two of them
    can be many times slower than one. A resumed run keeps its `recorded` number, on which the last
    bits depend. With OMP_NUM_THREADS, and for short runs, torch's number stays.
    """
    usual = torch.get_num_threads()
    chosen = usual
    if device.type == "cpu" and usual > 1 and "OMP_NUM_THREADS" not in os.environ:
        if isinstance(recorded, int) and recorded > 0:
            chosen = min(recorded, usual)
        elif config.train.steps >= WORTH_MEASURING:
            measured = {}
            for number in (usual, 1):
                torch.set_num_threads(number)
                cost = measure_cost(config, task, seed=seed, device=device, steps=2)
                measured[number] = cost.seconds_per_step
            chosen = min(measured, key=lambda number: measured[number])
    try:
        torch.set_num_threads(chosen)
        yield
    finally:
        torch.set_num_threads(usual)


def estimate_cost(config: ExperimentConfig, task: Task, *, seed: int, device: torch.device) -> Cost:
    """As `measure_cost`, but from short models and few examples: takes seconds for any run.

    Layers repeat with the period of the schedule, so time and memory are affine in the number of
    periods; both are in proportion to the examples of a step. Where steps are slow, one period
    has to do.
    """
    size, model = period(config.model), config.model
    nodes = max(1, task.spec.num_nodes or task.usual_nodes or 1)
    few = max(1, min(FEW, config.train.batch_size, FEW * 100**2 // nodes**2))
    found: list[tuple[float, int]] = []  # seconds and bytes of one period, of two
    with own_random_state(device):
        while len(found) < min(2, model.num_layers // size) and not (found and found[0][0] > SLOW):
            short = config.replace(model=first_layers(model, (len(found) + 1) * size))
            short = short.with_train(batch_size=few, accumulate=1, compile=False)
            found.append(_short_cost(Trainer(short, task, seed=seed, device=device)))
    more = model.num_layers // size - 1
    slopes = [max(0, b - a) if len(found) == 2 else a for a, b in zip(found[0], found[-1])]
    seconds, kept = (first + more * slope for first, slope in zip(found[0], slopes))
    batch = config.train.batch_size
    activations = int(kept * batch / config.train.accumulate / few)
    parameters = count_parameters(model, task.spec)
    return Cost.of(config, device, parameters, activations, seconds * batch / few)


def _short_cost(trainer: Trainer) -> tuple[float, int]:
    """Seconds of a step without the optimiser, and bytes that it keeps; a slow one counts once."""
    times: list[float] = []
    kept = 0
    native.library()  # a step does not include building the kernels
    while not times or (len(times) < 3 and sum(times) < SLOW):
        start = time.perf_counter()
        kept = _kept_bytes(trainer, lambda: trainer.loss_of_step(0).backward())
        times.append(time.perf_counter() - start)
    return min(times), kept


def blank_task(task: Task) -> Task:
    """The task with examples of zeros where its spec says all about them: none is generated.

    Graphs that come with the examples are made by the task, a few of them.
    """
    spec = task.spec
    known = spec.num_nodes is not None and spec.graph != "given" and spec.output == "node"
    if not known or spec.output_kind != "classes" or spec.node_features:
        return task.few(20).open()
    blank = copy.copy(task)

    def batch(step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        del step, seed, progress
        zeros = torch.zeros(batch_size, spec.num_nodes or 0, dtype=torch.long)
        return Batch(zeros, zeros, torch.ones_like(zeros, dtype=torch.bool))

    setattr(blank, "batch", batch)  # noqa: B010
    return blank


def _kept_bytes(trainer: Trainer, run: Callable[[], object]) -> int:
    """What `run` keeps from the forward for the backward pass, without the weights."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    return sum(size for pointer, size in kept.items() if pointer not in own)


def _at_once(config: ExperimentConfig, processes: int) -> int:
    """Examples of a step that a process has in memory together."""
    return max(1, config.train.batch_size // (config.train.accumulate * processes))


def expected_memory(
    config: ExperimentConfig, task: Task, *, seed: int, device: torch.device, processes: int = 1
) -> int:
    """Bytes that a process will need, from forward passes of one and two examples, which fit."""
    with own_random_state(device):
        kept = []
        for size in (1, 2):
            small = config.with_train(batch_size=size, accumulate=1, compile=False)
            trainer = Trainer(small, task, seed=seed, device=device)
            kept.append(_kept_bytes(trainer, partial(trainer.loss_of_step, 0)))
    more = (_at_once(config, processes) - 1) * max(0, kept[1] - kept[0])
    return PER_PARAMETER * trainer.model.num_parameters + kept[0] + more


def check_fits(
    config: ExperimentConfig, task: Task, *, device: torch.device, processes: int = 1
) -> None:
    """An error if examples or a step of any model cannot fit into memory. By arithmetic: making
    a single example that is far too large may take minutes."""
    need, free = task.bytes_to_make(config.train.batch_size), free_memory(torch.device("cpu"))
    if free is not None and need > free:
        raise TrainingError(
            f"Making {task.examples_word} of this size takes {need / MIB:,.0f} MiB at least, and "
            f"{free / MIB:,.0f} MiB are free: make them smaller, in training and in the test "
            "('graph-machine train --ignore-memory' tries it anyway)."
        )
    # A step has at least the nodes' addresses, or pointers to nodes.
    n, model = task.usual_nodes or 0, config.model
    dense = model.has_edges and model.address_space in ("weight", "logit")
    rows = model.num_edges if dense else int(task.spec.output == "pointer")
    check_step(config, task, 4 * _at_once(config, processes) * rows * n * n, device)


def check_memory(
    config: ExperimentConfig, task: Task, *, seed: int, device: torch.device, processes: int = 1
) -> None:
    """An error if a step will not fit into free memory: a system that runs out of it kills the
    program without a message."""
    if free_memory(device) is not None:
        need = expected_memory(config, task, seed=seed, device=device, processes=processes)
        check_step(config, task, need, device)


def check_step(config: ExperimentConfig, task: Task, need: int, device: torch.device) -> None:
    """An error if a step of `need` bytes does not fit into free memory."""
    free = free_memory(device)
    if free is not None and need > free:
        raise TrainingError(
            f"A step of {config.train.batch_size} {task.examples_word} needs about "
            f"{need / MIB:,.0f} MiB on {device}, and {free / MIB:,.0f} MiB are free: use a smaller "
            "train.batch_size or a larger train.accumulate ('graph-machine train --ignore-memory' "
            "tries it anyway)."
        )
