"""What a task is: everything that training, evaluation, prediction and reports need from it.

Your own task is a `TaskConfig` and a subclass of `Task`, in one file that is named with
`--import`. What it looks like (`spec`), what counts (`losses`, `metrics`) and how it is read and
shown (`parse`, `show`) follow from the config, without data; `open` finds or makes the data.
"""

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from graph_machine.config import InputSpec, TaskConfig
from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.plugins import load_installed
from graph_machine.registry import Registry
from graph_machine.tasks.answers import Answer, Solution, TextAnswer
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.disguise import Disguise
from graph_machine.tasks.looks import Looks
from graph_machine.tasks.losses import answer_losses, number_losses
from graph_machine.tasks.scores import Grouping, Metric, Scores

Split = Literal["train", "eval", "test"]
SPLITS: tuple[Split, ...] = ("train", "eval", "test")
Baseline = Callable[[Batch], Tensor]  # answers (b, q) of a batch

# A cross-entropy of 50 times that of a guess does not come back by itself.
EXPLODED = 50.0


class Task(Looks):
    """A task. Its first part follows from `config`; data and splits are there after `open`.

    Subclass it, or `GeneratedTask` where examples are made on demand. Shapes: b examples, n nodes,
    q places of the model's outputs, o numbers at each place (see `InputSpec`).

    >>> from graph_machine.config import SudokuConfig
    >>> sudoku = task_of(SudokuConfig(box="2x2"))
    >>> sudoku.spec.num_nodes, [metric.name for metric in sudoku.metrics]
    (16, ['board_accuracy', 'cell_accuracy'])
    >>> sudoku.parse("..3...4..4...2..").tokens.shape  # b n
    torch.Size([1, 16])
    """

    name: ClassVar[str] = "unknown"  # the same as its config's
    config: Any  # a TaskConfig
    # What an example and a node are called: `puzzles`, `boards` and `cells`, in Sudoku.
    examples_word: ClassVar[str] = "examples"
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
        """What a model must know of it."""
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
        """Memory that making its examples takes at the very least, so that a run which cannot
        make them is refused before it tries; 0 where that is little."""
        del batch_size
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
    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        """Every example of a split once (or the first `limit`), in a fixed order."""

    def close(self) -> None:
        """Let go of threads and files; a later call may open them again."""
        return

    def few(self, count: int) -> "Task":
        """The same task with about `count` generated examples, to measure what a step costs."""
        del count
        return self

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple["Task", str]:
        """The task whose test split is what a model may be tested on in `data`, and its name.

        `trained_on` is the identity of the data that the model learned from with `seed`.
        """
        del trained_on
        return self.open(data, seed), f"the test split of {data}"

    def fitting_data(self, data: str) -> "Task":
        """This task, without data, for examples of the size of those in `data`; see `fitting`."""
        del data
        return self

    seen_part: ClassVar[str] = ""  # what of an example `seen_in_training` looks for: `regions`

    def seen_in_training(self, other: "Task", limit: int | None) -> int | None:
        """How many test examples `other` trains on; None where that is not counted."""
        del other, limit
        return None

    @property
    def data_words(self) -> str:
        """What the data is, for the card of a model."""
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
        """What is reported; the first one decides which checkpoint is the best."""
        if self.spec.output_kind == "numbers":
            return (
                Metric("squared_error", "squared error", "squared_error", "nodes", False, False),
            )
        return (
            Metric("example_accuracy", "examples", "example_right"),
            Metric("node_accuracy", "nodes", "nodes_right", "nodes"),
        )

    groupings: tuple[Grouping, ...] = ()  # what metrics are also reported by

    def baselines(self) -> dict[str, Baseline]:
        """Ways to answer without a model, by name."""
        return {}

    def reference_scores(self, split: Split, limit: int | None = None) -> dict[str, Scores]:
        """Scores of ways that are no answers to a batch, such as a compressor's, by name."""
        del split, limit
        return {}

    # Text and pictures

    def parse(self, text: str) -> Batch:
        """One example as a user types it; `where` says what is asked. Here: a token per character.

        A task whose examples are more than a line of characters has its own form.
        """
        spec = self.spec
        if spec.alphabet is None:
            raise DataError(self._no_text())
        compact = "".join(text.split())
        bad = [character for character in compact if character not in spec.alphabet]
        if bad:
            raise DataError(f"The character '{bad[0]}' is not allowed; allowed: {spec.alphabet}")
        if spec.num_nodes not in (None, len(compact)):
            raise DataError(f"Expected {spec.num_nodes} characters, got {len(compact)}.")
        tokens = torch.tensor([[spec.alphabet.index(character) for character in compact]])
        given = spec.given_answers()
        where = torch.ones_like(tokens, dtype=torch.bool)
        if given is not None:
            where = torch.tensor(given)[tokens] < 0
        return Batch(tokens, torch.zeros_like(tokens), where)

    def fitting(self, text: str) -> "Task":
        """This task for examples of the size of one as `parse` reads it, where that may differ.

        `GraphMachine.for_spec` makes a model of that size.
        """
        del text
        return self

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """The examples of a text file, each as `parse` reads it, with the number of its (first)
        line: by default one per line."""
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield number, line.strip()

    def text(self, example: Batch) -> str:
        """The first example of a batch as `parse` reads it."""
        if self.spec.alphabet is None or example.tokens is None:
            raise DataError(self._no_text())
        return "".join(self.spec.alphabet[int(token)] for token in example.tokens[0])

    def _no_text(self) -> str:
        return (
            f"The task {self.name} has no text form: its spec has no alphabet, and its class no "
            f"parse and text of its own."
        )

    def show(
        self,
        example: Batch,
        answers: Shaped[np.ndarray, "q *o"],
        confidences: Float[np.ndarray, "q"],
        *,
        check: bool = False,
    ) -> Answer:
        """A model's answer to one example; `check` asks an exact solver, where there is one."""
        del confidences, check
        characters = self.spec.answers
        if self.spec.output_kind == "numbers":
            words = [" ".join(f"{number:.4g}" for number in np.atleast_1d(a)) for a in answers]
        else:
            words = [str(a) if characters is None else characters[int(a)] for a in answers]
        return TextAnswer(("" if characters else " ").join(words))

    @property
    def blocks(self) -> tuple[int, int] | None:
        """(rows, columns) of the blocks that the grid falls into, if any: lines in pictures, and
        regions that statistics look for beside rows and columns."""
        return None

    def example_regions(self, batch: Batch) -> dict[str, Shaped[np.ndarray, "b n"]]:
        """Kinds of regions that differ from example to example."""
        del batch
        return {}

    def places(self, example: Batch) -> Float[np.ndarray, "n 2"] | None:
        """Where the nodes of the first example are drawn, in the unit square (y goes down), for
        graphs without a grid; None: a layout is computed."""
        del example
        return None

    # For somebody who looks at single examples

    def parse_any(self, text: str) -> Batch:
        """As `parse`, but what contradicts itself is read too: it can be looked at."""
        return self.parse(text)

    def sample(self, count: int, seed: int) -> Batch | None:
        """Examples made while somebody waits; None where the task cannot, or it takes long."""
        del count, seed
        return None

    def solve(self, example: Batch) -> Solution:
        """The right answers to the first example, where they can be told, and remarks on it."""
        del example
        return Solution()

    def disguise(self, batch: Batch, key: int) -> Disguise | None:
        """The same examples in another form, drawn by `key`, to be asked again; None where the
        task has no other form. It should have rules too: `Answer.obeys` decides what is kept."""
        del batch, key
        return None

    def broken(self, example: Batch, answers: Shaped[np.ndarray, "q"]) -> list[int] | None:
        """Nodes whose answers break the task's rules, whatever is right; None: it has no rules."""
        del example, answers
        return None


TASKS: Registry[type[Task]] = Registry("task", from_users=True)


def task_class(config: TaskConfig) -> type[Task]:
    """The class behind a config. Tasks of this package are imported when they are asked for."""
    if config.name not in TASKS and config.name.isidentifier():
        path = f"{__package__}.{config.name}.task"
        try:
            importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
    load_installed()
    if config.name not in TASKS:
        raise ConfigError(
            f"The task '{config.name}' has a config, but no class: write a subclass of Task or "
            f"GeneratedTask with name = '{config.name}' beside {type(config).__name__}."
        )
    return TASKS[config.name]


def task_of(config: TaskConfig) -> Task:
    """The task of a config, without its data.

    >>> from graph_machine.config import MazeConfig
    >>> task_of(MazeConfig(side=9)).spec.num_nodes
    81
    """
    chosen = task_class(config)
    missing = sorted(getattr(chosen, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(
            f"The task '{config.name}' is not complete: {chosen.__name__} lacks "
            f"{', '.join(missing)}. (A GeneratedTask needs make_spec and make only.)"
        )
    return chosen(config)


def make_task(config: TaskConfig, data: str | None = None, seed: int = 0) -> Task:
    """A task with its data, split by `seed`.

    >>> from graph_machine.config import PointersConfig
    >>> task = make_task(PointersConfig(nodes=8, test_hops=6))
    >>> task.batch(step=0, batch_size=2, seed=0).answers.shape  # b q
    torch.Size([2, 8])
    """
    return task_of(config).open(data, seed)


def baseline_scores(task: Task, split: Split, limit: int | None = None) -> dict[str, Scores]:
    """The scores of every baseline and reference of a task, on the same examples.

    A baseline whose solver is not installed is left out.

    >>> from graph_machine.config import PointersConfig
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
