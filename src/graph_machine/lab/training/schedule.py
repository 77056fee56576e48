"""Functions of the step of a run: random numbers, learning rate, rounds."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graph_machine.config.base import require
from graph_machine.lab.config import ExperimentConfig, TrainConfig

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
    """Same seed, same bits. CPU kernels are deterministic; accelerators are set to be.

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


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up to the peak, then a cosine down to `final_lr` of it at the last step."""
    warmup = round(config.warmup * config.steps)
    if step < warmup:
        return config.peak_lr * (step + 1) / warmup
    share = (step - warmup) / max(1, config.steps - 1 - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return config.peak_lr * (config.final_lr + (1 - config.final_lr) * cosine)


def check_schedules(config: ExperimentConfig) -> None:
    """One clear line for contradictory settings when a run begins: they are set one by one."""
    train, most, core = config.train, config.model.rounds, config.model.has_core
    for name in ("rounds_min", "rounds_start", "grad_rounds"):
        value = getattr(train, name)
        require(
            value is None or (core and value <= most),
            f"train.{name} = {value} should be at most model.rounds = {most}"
            f"{'' if core else ', and the model has no recurrent core: set model.core_layers'}.",
        )
    fewest, start, through = train.rounds_min, train.rounds_start, train.grad_rounds
    require(
        fewest is None or start is None or fewest <= start,
        f"train.rounds_min = {fewest} should be at most train.rounds_start = {start}.",
    )
    for name, usual in (("round_loss", "all"), ("test_rounds", "")):
        value = getattr(train, name)
        require(
            value == usual or core,
            f"train.{name} = {value}: the model has no recurrent core; set model.core_layers.",
        )
    # Layers without a gradient have no state in Adam, and several processes wait for theirs.
    require(
        config.model.core_input != "none" or through is None or through == most,
        f"train.grad_rounds = {through} below model.rounds = {most} leaves the layers before the "
        "core without gradients where model.core_input=none: set model.core_input=add or "
        "train.grad_rounds=none.",
    )
    config.task.check()


def rounds_range(step: int, config: ExperimentConfig) -> range:
    """The numbers of rounds that a step may have."""
    train, most = config.train, config.model.rounds
    if train.rounds_start is not None:
        share = min(1.0, step / max(1, train.steps) / train.rounds_ramp)
        most = round(train.rounds_start + share * (most - train.rounds_start))
    fewest = most if train.rounds_min is None else min(train.rounds_min, most)
    return range(fewest, most + 1)


def training_rounds(step: int, seed: int, config: ExperimentConfig) -> int:
    """Rounds of the core at a step: a function of (seed, step), the same in every process."""
    return random.Random(step_seed(seed, step)).choice(rounds_range(step, config))


def round_weights(count: int, config: TrainConfig) -> list[float]:
    """Weights of the losses of the last `count` rounds; they sum to 1."""
    if config.round_loss == "last":
        return [0.0] * (count - 1) + [1.0]
    growing = config.round_loss == "growing"
    weights = [number if growing else 1.0 for number in range(1, count + 1)]
    return [weight / sum(weights) for weight in weights]
