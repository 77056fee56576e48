"""Where a run takes place: device and precision, processes, and signals that stop it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graph_machine.errors import ConfigError
from graph_machine.lab.config import TrainConfig


def precision_of(config: TrainConfig, device: torch.device) -> str:
    """`float32` or `bfloat16`, resolved for a device: bfloat16 where matrix products in it are
    fast; CPUs and Apple's count as slow."""
    if config.precision != "auto":
        return config.precision
    supported = getattr(getattr(torch, device.type, None), "is_bf16_supported", None)
    fast = device.type != "cpu" and supported is not None and bool(supported())
    return "bfloat16" if fast else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in the run's precision; logs, softmaxes and norms stay float32 inside."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device_type=device.type, dtype=torch.bfloat16)


def allow_tf32(config: TrainConfig, device: torch.device) -> None:
    """Where products are in bfloat16 anyway, float32 ones may be rounded to tf32, which is finer.

    A setting of the process; the Triton kernels follow it.
    """
    if device.type == "cuda" and precision_of(config, device) == "bfloat16":
        torch.set_float32_matmul_precision("high")


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
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if dist.is_available() and dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size(), local_rank)
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    on_cpu = torch.device(device).type == "cpu" if device else not torch.accelerator.is_available()
    backend = "gloo" if on_cpu else None  # None: torch's choice for the accelerator
    dist.init_process_group(backend)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), local_rank)
    finally:
        dist.destroy_process_group()


SAME_WISH = 1.0  # seconds
# A terminal that is closed sends SIGHUP, where there is such a signal.
STOPPING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class Interrupted(KeyboardInterrupt):
    """A run was stopped by a signal and has saved itself; `--resume` continues it."""

    def __init__(self, step: int, folder: object, signal_number: int) -> None:
        super().__init__(f"stopped and saved at step {step}: {folder}")
        self.step = step
        self.folder = folder
        self.signal_number = signal_number


class StopRequest:
    """While the block runs, `signal_number` is the signal that asked to stop (0: none).

    A later second signal is not waited for; one that comes at once is the same wish, passed on by
    a launcher (torchrun). Outside of the main thread signals cannot be caught, so
    there they act as usual.
    """

    signal_number = 0
    at_once = False  # from here on nothing would be lost: a signal ends the run where it is
    _asked = 0.0

    def __enter__(self) -> "StopRequest":
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.at_once:
            self.signal_number = self.signal_number or number
            raise KeyboardInterrupt
        if self.signal_number:
            if time.monotonic() - self._asked > SAME_WISH:
                raise KeyboardInterrupt
            return
        self.signal_number = number
        self._asked = time.monotonic()

    def __exit__(self, *details: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
