"""Configs of a model and of what it must know about its task, as frozen data. Imports no torch."""

from graph_machine.config.base import Config
from graph_machine.config.model import InputSpec, ModelConfig

__all__ = ["Config", "InputSpec", "ModelConfig"]
