"""One way to open a model by any of its names: weights, task and what is known of its training."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graph_machine.config import ModelConfig, TaskConfig
from graph_machine.config.legacy import task_of_spec
from graph_machine.errors import CheckpointError, ConfigError, count_of
from graph_machine.models.checkpoint import find_checkpoint, read_config
from graph_machine.models.graph_machine import GraphMachine
from graph_machine.models.handmade import handmade
from graph_machine.plugins import load_remembered
from graph_machine.run_files import read_run, run_above
from graph_machine.tasks.base import Split, Task, make_task, task_of
from graph_machine.tasks.batch import Batch

HANDMADE = "handmade"
# Generated for models that do not say what they were trained on: enough to look at, soon made.
EXAMPLES = 1000


@dataclass
class LoadedModel:
    """A model and what is known of it: its run, task, data and seed. `open_model` makes it.

    >>> subject = open_model("gm-4x4")
    >>> subject.budget
    '4x4 board, 6 layers, 500 steps of 64'
    >>> open_model("gm-recurrent-9x9").budget
    '9x9 board, 4 layers and a core of 2, 20 rounds, 8,500 steps of 16 after a warm start'
    """

    model: GraphMachine
    given_name: str  # as it was asked for: a folder, the name of a shipped model
    condition: str
    seed: int = 0
    task: Task | None = None  # without its data
    facts: dict[str, Any] = field(default_factory=dict)  # run.json, or what stands for it
    run: Path | None = None  # its run folder, where that is here

    @property
    def name(self) -> str:
        """What to call it in a title."""
        if self.condition == HANDMADE:
            return self.given_name.replace(":", " ")
        return f"{self.condition}-{self.seed}"

    @property
    def known_task(self) -> Task:
        """Its task; an error where the model does not say what that is."""
        if self.task is None:
            raise CheckpointError(f"This model does not say what its task is: {self.given_name}")
        return self.task

    @property
    def has_origin(self) -> bool:
        """Whether it says which data and seed it was trained with."""
        return {"seed", "data"} <= self.facts.keys()

    @property
    def budget(self) -> str:
        """One line on what the model is and how long it was trained, to stand beside its numbers.

        A reduced run must never be taken for the paper's.
        """
        grid = self.model.spec.grid
        words = [f"{grid[0]}x{grid[1]} board"] if grid and grid[0] > 1 else []
        if not words and self.task is not None:  # a graph or a sequence
            label, name = self.task.label, self.task.name
            words = [label if label.startswith(name) else f"{name} {label}"]
        layers = count_of(self.model.config.num_layers, "layers")
        words.append(f"{layers}{core_words(self.model.config)}")
        train = self.facts.get("config", {}).get("train", {})
        if "steps" in train:
            warm = " after a warm start" if self.facts.get("init_from") else ""
            steps = count_of(train["steps"], "steps")
            words.append(f"{steps} of {train.get('batch_size', '?')}{warm}")
        else:
            words.append("built by hand" if self.condition == HANDMADE else "training unknown")
        return ", ".join(words)

    def for_data(self, data: str | None) -> "LoadedModel":
        """Itself for the examples of a file: of another size, where the model takes any.

        >>> subject = open_model("gm-4x4")
        >>> subject.for_data(None) is subject
        True
        """
        if data is None or self.task is None:
            return self
        task = self.task.fitting_data(data)
        if task is self.task:
            return self
        return replace(self, task=task, model=self.model.for_spec(task.spec))

    def check_layers(self) -> None:
        """An error where its layers are not a Graph Machine's: nothing in them has a name."""
        body = self.model.config.body
        if body != "graph-machine":
            raise ConfigError(
                f"{self.name} has layers of PyTorch Geometric (model.body={body}), which cannot be "
                "looked into: there is nothing to record or to measure."
            )

    def open_data(self, data: str | None) -> Task:
        """Its task with data: a file, or what its own config generates."""
        return make_task(self.known_task.config, data, self.seed)

    def batches(
        self, data: str | None, *, split: Split = "test", batch_size: int = 16, limit: int | None
    ) -> Iterator[Batch]:
        """Examples of a split, as its own seed draws it."""
        return self.open_data(data).split_batches(split, batch_size, limit)

    def samples(
        self, data: str | None, count: int, *, split: Split = "test"
    ) -> tuple[Batch, dict[str, Any]]:
        """The first examples of a split, and the data's identity."""
        task = self.open_data(data)
        whole = Batch.join(list(task.split_batches(split, count, count)))
        about = {"identity": task.identity, "source": task.source, "split": split}
        return whole, about | {"seed": self.seed}


def core_words(config: ModelConfig) -> str:
    """What follows the layers: ` and a core of 2, 20 rounds`, or nothing."""
    if not config.has_core:
        return ""
    return f" and a core of {config.core_layers}, {count_of(config.rounds, 'rounds')}"


def open_model(name: str | Path) -> LoadedModel:
    """A run folder, one of its checkpoints, a shipped model, one of the Hub, or `handmade:3x3`.

    >>> open_model("gm-4x4").model.predict(["..3...4..4...2.."]).texts
    ['4132234114233214']
    """
    name = str(name)
    if name.partition(":")[0] == HANDMADE:
        return _handmade(name)
    model = GraphMachine.from_pretrained(name)
    folder = find_checkpoint(name)
    told = {} if folder is None else read_config(folder)
    run = None if folder is None else run_above(folder)
    facts: dict[str, Any] = told if run is None else read_run(run)
    if run is None and "train" in told:  # a shipped model, without its run folder
        facts = told | {"config": {"train": told["train"]}}
    load_remembered(told.get("imports"), name)
    kind = "gm" if model.config.has_edges else "transformer"
    condition = str(told.get("condition") or facts.get("condition") or kind)
    seed = int(told.get("seed") or facts.get("seed") or 0)
    saved = told.get("task") or facts.get("config", {}).get("task")
    try:
        config = TaskConfig.from_dict(saved) if saved else task_of_spec(model.spec, EXAMPLES)
        task = None if config is None else task_of(config)
    except ConfigError as error:
        raise CheckpointError(f"Its task is not understood ({error}): {name}") from None
    return LoadedModel(model, name, condition, seed, task, facts, run)


def _handmade(name: str) -> LoadedModel:
    model, config = handmade(name.partition(":")[2] or "3x3", EXAMPLES)
    return LoadedModel(model, name, HANDMADE, task=task_of(config))
