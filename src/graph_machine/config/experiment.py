"""A whole run as data: model, task and training."""

from dataclasses import dataclass

from graph_machine.config.base import Config, field, require
from graph_machine.config.model import ModelConfig
from graph_machine.config.task import SudokuConfig, TaskConfig
from graph_machine.config.train import TrainConfig


@dataclass(frozen=True)
class ExperimentConfig(Config):
    """One condition. Seeds are not part of it: a condition is run with several.

    >>> config = ExperimentConfig().with_model(num_layers=6).with_train(steps=500)
    >>> config.set("train.peak_lr", "2e-3").train.peak_lr
    0.002
    """

    model: ModelConfig = field(ModelConfig(), "what the model is")
    task: TaskConfig = field(SudokuConfig(), "what it learns")
    train: TrainConfig = field(TrainConfig(), "how it learns")

    def validate(self) -> None:
        require(
            self.train.entropy_of == "factors" or self.model.address_space in ("weight", "logit"),
            f"train.entropy_of=raw needs a dense address space, got {self.model.address_space}.",
        )

    def with_model(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of the model."""
        return self.replace(model=self.model.replace(**changes))

    def with_task(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of the task."""
        return self.replace(task=self.task.replace(**changes))

    def with_train(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of training."""
        return self.replace(train=self.train.replace(**changes))
