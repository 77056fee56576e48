"""What a run will cost, measured on a few of its own steps."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graph_machine.config import ExperimentConfig
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
                f"{self.precision}, {duration(whole)} for {self.steps:,} steps without evaluation",
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
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            trainer.step(0)
        start = time.perf_counter()
        taken = 0
        while taken < steps and (not taken or time.perf_counter() - start < PATIENCE):
            taken += 1
            trainer.step(taken)
        seconds = (time.perf_counter() - start) / taken
        task.close()
    weights = sum(p.numel() * p.element_size() for p in trainer.model.parameters())
    own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    return Cost(
        parameters=trainer.model.num_parameters,
        weights_bytes=4 * weights,
        activations_bytes=sum(size for pointer, size in kept.items() if pointer not in own),
        seconds_per_step=seconds,
        steps=config.train.steps,
        device=str(device),
        precision=precision_of(config.train, device),
    )
