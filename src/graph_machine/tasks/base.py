"""What training needs of a task. A task of one's own is a `TaskConfig` and a subclass of `Task`.

A task declares what it looks like (`spec_for`) without data, so that a model can be built and
counted anywhere, and gives batches that are a function of (seed, step), so that a run that
resumes sees the same ones.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from graph_machine.config import InputSpec, TaskConfig
from graph_machine.graphs import InputGraph
from graph_machine.registry import Registry

Split = Literal["train", "eval", "test"]


class Band(NamedTuple):
    """Examples whose value of a group lies from `low` up to (not including) `high`."""

    label: str
    low: float
    high: float


@dataclass(frozen=True)
class Batch:
    """Examples of equal size. `groups` says per example what accuracy is also told by."""

    tokens: Int[Tensor, "b n"]
    answers: Int[Tensor, "b n"]  # output indices; any value where `where` is False
    where: Bool[Tensor, "b n"]  # the nodes that count: blanks, in Sudoku
    groups: dict[str, Shaped[np.ndarray, "b"]] = field(default_factory=dict)
    graph: InputGraph | None = None  # None: the graph of the task's spec
    node_mask: Bool[Tensor, "b n"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, stop: int) -> "Batch":
        """Examples `start` to `stop`."""
        graph = self.graph
        if graph is not None and graph.targets.ndim == 3:
            features = None if graph.features is None else graph.features[start:stop]
            graph = replace(
                graph,
                targets=graph.targets[start:stop],
                categories=graph.categories[start:stop],
                features=features,
            )
        return Batch(
            self.tokens[start:stop],
            self.answers[start:stop],
            self.where[start:stop],
            {name: values[start:stop] for name, values in self.groups.items()},
            graph,
            None if self.node_mask is None else self.node_mask[start:stop],
        )

    def to(self, device: torch.device) -> "Batch":
        graph = self.graph
        if graph is not None:
            features = None if graph.features is None else graph.features.to(device)
            graph = replace(
                graph,
                targets=graph.targets.to(device),
                categories=graph.categories.to(device),
                features=features,
            )
        return replace(
            self,
            tokens=self.tokens.to(device),
            answers=self.answers.to(device),
            where=self.where.to(device),
            graph=graph,
            node_mask=None if self.node_mask is None else self.node_mask.to(device),
        )


class Task(ABC):
    """Data and metrics of one task, split for one seed."""

    name: ClassVar[str]  # the same as its config's
    band_group: ClassVar[str] = ""  # the group that `bands` are about
    bands: ClassVar[tuple[Band, ...]] = ()  # what accuracy is also told by
    config: TaskConfig
    spec: InputSpec
    identity: str  # names the data: a run resumes on the same data only
    source: str  # where the data came from, for people
    sizes: dict[str, int]  # examples per split

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            TASKS.add(cls.name, cls)

    @abstractmethod
    def __init__(self, config: TaskConfig, *, data: str | None = None, seed: int = 0) -> None:
        """Open `data` (or make some where it is None) and split it by `seed`."""

    @classmethod
    @abstractmethod
    def spec_for(cls, config: TaskConfig) -> InputSpec:
        """What a model must know, told by the config alone."""

    @classmethod
    def label_for(cls, config: TaskConfig) -> str:
        """A short word for run folders and reports, such as `4x4`."""
        return config.name

    @abstractmethod
    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        """The training batch of a step: the same for the same arguments, always.

        `progress` is the share of the training that is done, for tasks with a curriculum.
        """

    @abstractmethod
    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        """Every example of a split once (or the first `limit`), in a fixed order."""

    def close(self) -> None:
        """Let go of threads and files; a later call may open them again."""
        return

    def score(
        self, answers: Int[Tensor, "b n"], batch: Batch
    ) -> dict[str, Shaped[np.ndarray, "b"]]:
        """Per example: nodes that count, how many are right, and whether all are."""
        where = batch.where.cpu().numpy()
        right = (answers == batch.answers).cpu().numpy() & where
        cells, cells_right = where.sum(axis=1), right.sum(axis=1)
        return {"cells": cells, "cells_right": cells_right, "board_right": cells_right == cells}


TASKS: Registry[type[Task]] = Registry("task")


def task_class(config: TaskConfig) -> type[Task]:
    """The class behind a config. Tasks of this package are imported when they are asked for."""
    if config.name not in TASKS and config.name.isidentifier():
        path = f"{__package__}.{config.name}.task"
        try:
            importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
    return TASKS[config.name]


def make_task(config: TaskConfig, data: str | None = None, seed: int = 0) -> Task:
    """Open a task's data, split by `seed`."""
    return task_class(config)(config, data=data, seed=seed)


def spec_for(config: TaskConfig) -> InputSpec:
    return task_class(config).spec_for(config)


def label_for(config: TaskConfig) -> str:
    return task_class(config).label_for(config)
