"""What a run will cost, measured on a few of its own steps."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graph_machine.config import ExperimentConfig
from graph_machine.errors import TrainingError, count_of
from graph_machine.machine import free_memory
from graph_machine.tasks.base import Task
from graph_machine.training.devices import precision_of
from graph_machine.training.log import duration
from graph_machine.training.seeding import own_random_state
from graph_machine.training.trainer import Trainer

MIB = 2**20
PATIENCE = 20.0


@dataclass(frozen=True)
class Cost:
    """Bytes and seconds of one process."""

    parameters: int
    weights_bytes: int  # with their gradients and Adam's two moments
    activations_bytes: int  # kept from the forward for the backward pass
    seconds_per_step: float
    steps: int
    device: str
    precision: str

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
        task.close()
    return Cost(
        parameters=trainer.model.num_parameters,
        weights_bytes=_weights_bytes(trainer),
        activations_bytes=activations,
        seconds_per_step=seconds,
        steps=config.train.steps,
        device=str(device),
        precision=precision_of(config.train, device),
    )


def _weights_bytes(trainer: Trainer) -> int:
    """Weights with their gradients and Adam's two moments."""
    return 4 * sum(p.numel() * p.element_size() for p in trainer.model.parameters())


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
        task.close()
    each = max(1, config.train.batch_size // (config.train.accumulate * processes))
    return _weights_bytes(trainer) + kept[0] + (each - 1) * max(0, kept[1] - kept[0])


def least_memory(config: ExperimentConfig, task: Task, *, processes: int = 1) -> int:
    """Bytes that a step needs at the very least, by arithmetic: of the nodes' addresses, or of
    pointers to nodes. Making a single example that is far too large may take minutes."""
    n, model = task.usual_nodes or 0, config.model
    dense = model.has_edges and model.address_space in ("weight", "logit")
    rows = model.num_edges if dense else int(task.spec.output == "pointer")
    each = max(1, config.train.batch_size // (config.train.accumulate * processes))
    return 4 * each * rows * n * n


def _check_examples(config: ExperimentConfig, task: Task) -> None:
    need = task.bytes_to_make(config.train.batch_size)
    free = free_memory(torch.device("cpu"))
    if free is not None and need > free:
        raise TrainingError(
            f"Making {task.examples_word} of this size takes {need / MIB:,.0f} MiB at least, and "
            f"{free / MIB:,.0f} MiB are free: make them smaller, in training and in the test "
            "('graph-machine train --ignore-memory' tries it anyway)."
        )


def check_size(
    config: ExperimentConfig, task: Task, *, device: torch.device, processes: int = 1
) -> None:
    """An error where examples or a step cannot fit into free memory, whatever the model does: by
    arithmetic, before a single example is made."""
    _check_examples(config, task)
    _check_step(config, task, least_memory(config, task, processes=processes), device)


def check_memory(
    config: ExperimentConfig, task: Task, *, seed: int, device: torch.device, processes: int = 1
) -> None:
    """An error where a step will not fit into the memory that is free: a system that runs out of
    it ends the program without a word."""
    check_size(config, task, device=device, processes=processes)
    if free_memory(device) is not None:
        need = expected_memory(config, task, seed=seed, device=device, processes=processes)
        _check_step(config, task, need, device)


def _check_step(config: ExperimentConfig, task: Task, need: int, device: torch.device) -> None:
    free = free_memory(device)
    if free is not None and need > free:
        raise TrainingError(
            f"A step of {config.train.batch_size} {task.examples_word} needs about "
            f"{need / MIB:,.0f} MiB on {device}, and {free / MIB:,.0f} MiB are free: use a smaller "
            "train.batch_size or a larger train.accumulate ('graph-machine train --ignore-memory' "
            "tries it anyway)."
        )
