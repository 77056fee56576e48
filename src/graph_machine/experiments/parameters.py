"""Trainable parameters of a model, counted without making it."""

from functools import lru_cache

import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.models import GraphMachine
from graph_machine.models.depth import by_depth


@lru_cache(maxsize=256)
def count_parameters(config: ModelConfig, spec: InputSpec) -> int:
    """Exact, on the meta device: shapes without memory."""

    def count(short: ModelConfig) -> int:
        with torch.device("meta"):
            return GraphMachine(short, spec).num_parameters

    return by_depth(config, count)
