"""Parameter and operation counts, from two short models instead of the whole one."""

from collections.abc import Callable
from functools import lru_cache

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.models.build import ShapesOnly
from graph_machine.models.graph_machine import GraphMachine


def period(config: ModelConfig) -> int:
    """The smallest number of layers after which the schedule of edge sublayers repeats."""
    schedule = config.schedule()
    for size in range(1, len(schedule)):
        if len(schedule) % size == 0 and schedule == schedule[:size] * (len(schedule) // size):
            return size
    return len(schedule)


def first_layers(config: ModelConfig, layers: int) -> ModelConfig:
    """The config of only the first layers, with their edge sublayers."""
    edge_sublayers = sum(config.schedule()[:layers])
    return config.replace(num_layers=layers, num_edge_sublayers=edge_sublayers)


def count_by_depth(config: ModelConfig, count: Callable[[ModelConfig], int]) -> int:
    """The result of `count` for the whole model, computed from two short ones.

    Layers repeat with the period of the schedule, so such a count is affine in the number of
    periods; building all 32 layers of every condition takes seconds.
    """
    size = period(config)
    periods = config.num_layers // size
    once = count(first_layers(config, size))
    if periods == 1:
        return once
    return once + (periods - 1) * (count(first_layers(config, 2 * size)) - once)


@lru_cache(maxsize=256)
def count_parameters(config: ModelConfig, spec: InputSpec) -> int:
    """Trainable parameters, exactly, without making the model."""

    def count(short: ModelConfig) -> int:
        with ShapesOnly():
            return GraphMachine(short, spec).num_parameters

    return count_by_depth(config, count)
