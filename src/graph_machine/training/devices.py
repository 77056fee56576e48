"""Where a run takes place, and in what precision."""

from contextlib import AbstractContextManager, nullcontext

import torch

from graph_machine.config import TrainConfig
from graph_machine.errors import ConfigError


def choose_device(name: str | None = None, local_rank: int = 0) -> torch.device:
    """The device of this process: by name, else the machine's accelerator, else the CPU."""
    if name is not None:
        try:
            device = torch.device(name)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"The device '{name}' cannot be used here: {reason}") from None
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return torch.device("cpu")
    if torch.accelerator.device_count() > 1:
        return torch.device(accelerator.type, local_rank % torch.accelerator.device_count())
    return accelerator


def gains_from_bfloat16(device: torch.device) -> bool:
    """Whether matrix products in bfloat16 are fast here; CPUs and Apple's count as slow."""
    module = getattr(torch, device.type, None)
    supported = getattr(module, "is_bf16_supported", None)
    return device.type != "cpu" and supported is not None and bool(supported())


def precision_of(config: TrainConfig, device: torch.device) -> str:
    """`float32` or `bfloat16`, resolved for a device."""
    if config.precision != "auto":
        return config.precision
    return "bfloat16" if gains_from_bfloat16(device) else "float32"


def autocast(config: TrainConfig, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in the run's precision; logs, softmaxes and norms stay float32 inside."""
    if precision_of(config, device) == "float32":
        return nullcontext()
    return torch.autocast(device_type=device.type, dtype=torch.bfloat16)


def allow_tf32(config: TrainConfig, device: torch.device) -> None:
    """Where products are in bfloat16 anyway, float32 ones may be rounded to tf32, which is finer.

    A setting of the process; the Triton kernels follow it.
    """
    if device.type == "cuda" and precision_of(config, device) == "bfloat16":
        torch.set_float32_matmul_precision("high")
