"""What a run is, as frozen data. Imports no torch."""

from graph_machine.config.base import Config
from graph_machine.config.boards import JigsawConfig, MazeConfig
from graph_machine.config.experiment import ExperimentConfig
from graph_machine.config.graph_tasks import (
    AlgorithmsConfig,
    PointersConfig,
    RecallConfig,
    TextConfig,
)
from graph_machine.config.model import ModelConfig
from graph_machine.config.spec import InputSpec
from graph_machine.config.task import TASK_CONFIGS, SudokuConfig, TaskConfig
from graph_machine.config.train import TrainConfig

__all__ = [
    "TASK_CONFIGS",
    "AlgorithmsConfig",
    "Config",
    "ExperimentConfig",
    "InputSpec",
    "JigsawConfig",
    "MazeConfig",
    "ModelConfig",
    "PointersConfig",
    "RecallConfig",
    "SudokuConfig",
    "TaskConfig",
    "TextConfig",
    "TrainConfig",
]
