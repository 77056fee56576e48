"""Random numbers of a run: functions of (seed, step), so resuming needs no saved state."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MASK = (1 << 63) - 1


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of everything random in one step of one process (Gumbel noise, sampling)."""
    value = 0
    for part in (seed, step, rank):
        # Multiply and fold, so that neighbouring steps share no pattern.
        value = ((value ^ (part + 1)) * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        value ^= value >> 29
    return value & _MASK


@contextmanager
def own_random_state(device: torch.device) -> Iterator[None]:
    """Seeding inside the block does not change the caller's random numbers."""
    devices = [] if device.type == "cpu" else [torch.accelerator.current_device_index()]
    kind = "cuda" if device.type == "cpu" else device.type  # irrelevant without devices
    with torch.random.fork_rng(devices=devices, device_type=kind):
        yield


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Same seed, same bits. CPU kernels are so already; accelerators are asked to be.

    An operation without a deterministic form warns and runs (torch's `warn_only`).
    """
    if device.type == "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)
