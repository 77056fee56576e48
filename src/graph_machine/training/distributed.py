"""Several processes that train one model (torchrun), or just this one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graph_machine.config import TrainConfig
from graph_machine.errors import ConfigError


@dataclass(frozen=True)
class Processes:
    """This process among `size`; with one, every method is the identity."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """The one that writes files and shows progress."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Summed over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def share(self, batch_size: int) -> tuple[int, int]:
        """The rows of a global batch that are this process's."""
        local = batch_size // self.size
        return self.rank * local, (self.rank + 1) * local

    def check(self, config: TrainConfig) -> None:
        parts = self.size * config.accumulate
        if config.batch_size % parts:
            raise ConfigError(
                f"train.batch_size {config.batch_size} should be a multiple of processes x "
                f"accumulate = {self.size} x {config.accumulate}."
            )

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model with gradients averaged over the processes."""
        if self.size == 1:
            return model
        devices = None if device.type == "cpu" else [device]
        # No buffers to send: the input graph is the same everywhere.
        return DistributedDataParallel(model, device_ids=devices, broadcast_buffers=False)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


ALONE = Processes()


@contextmanager
def joined_processes(device: str | None = None) -> Iterator[Processes]:
    """The processes that torchrun started (from its environment variables), or only this one.

    A process group that the caller has made already is used, and left as it is.
    """
    if dist.is_available() and dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size(), _local_rank())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    on_cpu = torch.device(device).type == "cpu" if device else not torch.accelerator.is_available()
    backend = "gloo" if on_cpu else None  # None: torch's choice for the accelerator
    dist.init_process_group(backend)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), _local_rank())
    finally:
        dist.destroy_process_group()


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))
