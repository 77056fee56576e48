"""Trainable parameters of a model, counted without making it."""

from functools import lru_cache

import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.models import GraphMachine


@lru_cache(maxsize=256)
def count_parameters(config: ModelConfig, spec: InputSpec) -> int:
    """Exact, on the meta device: shapes without memory.

    Layers repeat with the period of the edge schedule, so the count is affine in the number of
    periods and two short models tell it; building all 32 layers of every condition takes seconds.
    """
    period = _period(config)
    periods = config.num_layers // period
    once = _count(config, spec, period)
    if periods == 1:
        return once
    return once + (periods - 1) * (_count(config, spec, 2 * period) - once)


def _period(config: ModelConfig) -> int:
    """The shortest stretch of layers whose repetition is the schedule."""
    schedule = config.schedule()
    for size in range(1, len(schedule)):
        if len(schedule) % size == 0 and schedule == schedule[:size] * (len(schedule) // size):
            return size
    return len(schedule)


def _count(config: ModelConfig, spec: InputSpec, layers: int) -> int:
    edge_sublayers = sum(config.schedule()[:layers])
    short = config.replace(num_layers=layers, num_edge_sublayers=edge_sublayers)
    with torch.device("meta"):
        return GraphMachine(short, spec).num_parameters
