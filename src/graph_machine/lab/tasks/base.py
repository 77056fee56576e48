"""A task: everything that training, evaluation, prediction and reports need from it.

Your own task is a `TaskConfig` and a subclass of `Task`, in one file that is named with
`--import`. What it looks like (`spec`), what counts (`losses`, `metrics`) and how it is read and
shown (`parse`, `show`) follow from the config, without data; `open` finds or makes the data.
"""

import importlib
import math
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import ConfigError, MissingExtraError
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.plugins import load_installed
from graph_machine.lab.tasks.batch import Batch, Batches
from graph_machine.lab.tasks.scores import Grouping, Metric, Scores, answer_losses, number_losses
from graph_machine.lab.tasks.view import Baseline as Baseline
from graph_machine.lab.tasks.view import Split as Split
from graph_machine.lab.tasks.view import TaskView
from graph_machine.registry import Registry

SPLITS: tuple[Split, ...] = ("train", "eval", "test")

# A cross-entropy of 50 times that of a guess does not come back by itself.
EXPLODED = 50.0


class Task(TaskView):
    """What a model and the training loop need; how people see it is `TaskView`, all of it optional.

    The first part follows from `config`; data and splits are there after `open`.

    Subclass it, or `GeneratedTask` where examples are made on demand. Shapes: b examples, n nodes,
    q places of the model's outputs, o numbers at each place (see `InputSpec`).

    >>> from graph_machine.lab.config import SudokuConfig
    >>> sudoku = task_of(SudokuConfig(box="2x2"))
    >>> sudoku.spec.num_nodes, [metric.name for metric in sudoku.metrics]
    (16, ['board_accuracy', 'cell_accuracy'])
    >>> sudoku.parse("..3...4..4...2..").tokens.shape  # b n
    torch.Size([1, 16])
    """

    config: Any  # a TaskConfig
    # What an example and a node are called: `puzzles`, `boards` and `cells`, in Sudoku.
    examples_word: ClassVar[str] = "examples"
    counted: ClassVar[tuple[str, str]] = ("example", "node")  # in the metrics: `board`, `cell`
    identity: str  # names the data: a run resumes on the same data only
    source: str  # where the data came from: a path, or `generated`
    sizes: dict[str, int]  # examples per split

    def __init__(self, config: TaskConfig) -> None:
        self.config = config

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            TASKS.add(cls.name, cls)

    # What it looks like

    @cached_property
    def spec(self) -> InputSpec:
        """What a model needs to know about it."""
        return self.make_spec()

    @abstractmethod
    def make_spec(self) -> InputSpec:
        """`spec`, made from the config."""

    @property
    def label(self) -> str:
        """A short word for run folders and reports, such as `4x4`."""
        return self.config.name

    @property
    def usual_nodes(self) -> int | None:
        """Nodes of a large training example, where that is known before one is made."""
        return self.spec.num_nodes

    def bytes_to_make(self, batch_size: int) -> int:
        """The least memory that making its examples takes, so that a run without enough is refused
        before it tries; 0 if that is little."""
        return 0

    # Data

    @abstractmethod
    def open(self, data: str | None = None, seed: int = 0) -> "Task":
        """Open `data` (None: generate it), split by `seed`; returns the task itself."""

    @abstractmethod
    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        """The training batch of a step: the same for the same arguments, always.

        `progress` is the share of the training that is done, for tasks with a curriculum.
        """

    @abstractmethod
    def split_batches(self, split: Split, batch_size: int, limit: int | None = None) -> Batches:
        """Every example of a split once (or the first `limit`), in a fixed order."""

    def few(self, count: int) -> "Task":
        """The same task with about `count` generated examples, to measure what a step costs."""
        return self

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple["Task", str]:
        """The task whose test split is what a model may be tested on in `data`, and its name.

        `trained_on` is the identity of the data that the model learned from with `seed`.
        """
        return self.open(data, seed), f"the test split of {data}"

    def fitting_data(self, data: str) -> "Task":
        """This task, without data, for examples of the size of those in `data`; see `fitting`."""
        return self

    seen_part: ClassVar[str] = ""  # what of an example `seen_in_training` looks for: `regions`

    def seen_in_training(self, other: "Task", limit: int | None) -> int | None:
        """How many test examples `other` trains on; None where that is not counted."""
        return None

    @property
    def data_words(self) -> str:
        """A description of the data, for the card of a model."""
        return f"{sum(self.sizes.values()):,} {self.examples_word}"

    # What counts

    def losses(self, outputs: Float[Tensor, "b q o"], batch: Batch) -> Float[Tensor, "b"]:
        """The loss of every example: cross-entropy of classes, squared error of numbers."""
        kind = answer_losses if self.spec.output_kind == "classes" else number_losses
        return kind(outputs, batch.answers, batch.where)

    @property
    def largest_loss(self) -> float:
        """A loss above this does not come back by itself, and a run stops there."""
        if self.spec.output_kind == "numbers":
            return math.inf
        choices = max(2, self.spec.num_outputs, self.spec.num_nodes or 0)
        return EXPLODED * math.log(choices if self.chooses else max(2, self.spec.num_outputs))

    @property
    def chooses(self) -> bool:
        """Whether an answer is one of the edges or nodes, and not of fixed classes."""
        return self.spec.output in ("slot", "pointer")

    def decide(self, outputs: Float[Tensor, "b q o"]) -> Shaped[Tensor, "b q *o"]:
        """Answers from a model's outputs."""
        return outputs.argmax(dim=-1) if self.spec.output_kind == "classes" else outputs

    def score(
        self, answers: Shaped[Tensor, "b q *o"], batch: Batch
    ) -> dict[str, Shaped[Tensor, "b"]]:
        """Per example the columns that `metrics` are made of."""
        if self.spec.output_kind == "numbers":
            errors = number_losses(answers, batch.answers, batch.where)
            nodes = batch.where.sum(dim=-1)
            return {"nodes": nodes, "squared_error": errors * nodes}
        right = (answers == batch.answers) | ~batch.where
        return {
            "nodes": batch.where.sum(dim=-1),
            "nodes_right": (right & batch.where).sum(dim=-1),
            "example_right": right.all(dim=-1),
        }

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The reported metrics; the first one decides which checkpoint is the best."""
        if self.spec.output_kind == "numbers":
            return (
                Metric("squared_error", "squared error", "squared_error", "nodes", False, False),
            )
        example, node = self.counted
        return (
            Metric(f"{example}_accuracy", f"{example}s", "example_right"),
            Metric(f"{node}_accuracy", f"{node}s", "nodes_right", "nodes"),
        )

    groupings: tuple[Grouping, ...] = ()  # what metrics are also reported by

    def fitting(self, text: str) -> "Task":
        """This task for examples of the size of one as `parse` reads it, where that may differ.

        `GraphMachine.for_spec` makes a model of that size.
        """
        return self


TASKS: Registry[type[Task]] = Registry("task", from_users=True)
# The modules of the tasks that come with this package; each registers its class.
SHIPPED = {
    "sudoku": "sudoku.task",
    "jigsaw": "jigsaw.puzzles",
    "maze": "maze.mazes",
    "algorithms": "algorithms.task",
    "pointers": "pointers",
    "recall": "recall",
    "text": "text",
    "clrs": "clrs",
    "relations": "relations",
}


def task_of(config: TaskConfig) -> Task:
    """The task of a config, without its data. Tasks of this package are imported on demand.

    >>> from graph_machine.lab.config import MazeConfig
    >>> task_of(MazeConfig(side=9)).spec.num_nodes
    81
    """
    if config.name in SHIPPED:
        importlib.import_module(f"{__package__}.{SHIPPED[config.name]}")
    load_installed()
    if config.name not in TASKS:
        raise ConfigError(
            f"The task '{config.name}' has a config, but no class: write a subclass of Task or "
            f"GeneratedTask with name = '{config.name}' beside {type(config).__name__}."
        )
    chosen = TASKS[config.name]
    missing = sorted(getattr(chosen, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(
            f"The task '{config.name}' is not complete: {chosen.__name__} lacks "
            f"{', '.join(missing)}. (A GeneratedTask needs make_spec and make only.)"
        )
    return chosen(config)


def make_task(config: TaskConfig, data: str | None = None, seed: int = 0) -> Task:
    """A task with its data, split by `seed`.

    >>> from graph_machine.lab.config import PointersConfig
    >>> task = make_task(PointersConfig(nodes=8, test_hops=6))
    >>> task.batch(step=0, batch_size=2, seed=0).answers.shape  # b q
    torch.Size([2, 8])
    """
    return task_of(config).open(data, seed)


def baseline_scores(task: Task, split: Split, limit: int | None = None) -> dict[str, Scores]:
    """The scores of every baseline and reference of a task, on the same examples.

    A baseline whose solver is not installed is left out.

    >>> from graph_machine.lab.config import PointersConfig
    >>> found = baseline_scores(make_task(PointersConfig(nodes=8, test_hops=6)), "test", limit=16)
    >>> found["exact"].summary()["example_accuracy"]
    1.0
    """
    found: dict[str, Scores] = {}
    for name, answer in task.baselines().items():
        columns: dict[str, list[np.ndarray]] = {}
        groups: dict[str, list[np.ndarray]] = {}
        try:
            for batch in task.split_batches(split, 4096, limit):
                for key, values in task.score(answer(batch), batch).items():
                    columns.setdefault(key, []).append(values.numpy().astype(np.float64))
                for key, keys in batch.groups.items():
                    groups.setdefault(key, []).append(keys)
        except MissingExtraError:
            continue
        joined = [{k: np.concatenate(v) for k, v in part.items()} for part in (columns, groups)]
        found[name] = Scores(joined[0], joined[1], task.metrics)
    return found | task.reference_scores(split, limit)
