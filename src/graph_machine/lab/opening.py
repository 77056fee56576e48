"""A model with its task: opened by any of its names, and answering in several tries.

A try whose answer breaks the rules is followed by one in another form. The rules are the task's own
(`Answer.obeys`) and need no solution: a filled Sudoku board shows by itself whether it is one, a
marked maze whether the marks are a path. The other form is a `Task.disguise`: other names of
digits, moved lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.config import ModelConfig
from graph_machine.errors import CheckpointError, ConfigError, count_of
from graph_machine.lab.config import SudokuConfig, TaskConfig
from graph_machine.lab.plugins import load_remembered
from graph_machine.lab.run_files import read_run, run_above
from graph_machine.lab.tasks.base import Split, Task, make_task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models.checkpoint import open_checkpoint
from graph_machine.models.graph_machine import GraphMachine
from graph_machine.models.handmade import handmade_gm
from graph_machine.models.predict import AS_TRAINED, Prediction, Rounds, answer, prediction

HANDMADE = "handmade"
# Generated for models that do not say what they were trained on: enough to look at, soon made.
EXAMPLES = 1000


@dataclass(repr=False)
class LoadedModel:
    """A model with its run, task, data and seed, as far as they are known. `open_model` makes it.

    >>> subject = open_model("gm-4x4")
    >>> subject.budget
    '4x4 board, 6 layers, 500 steps of 64'
    >>> open_model("gm-recurrent-9x9").budget
    '9x9 board, 4 layers and a core of 2, 20 rounds, 8,500 steps of 16 after a warm start'
    """

    model: GraphMachine
    given_name: str  # as it was opened: a folder, the name of a shipped model
    condition: str
    seed: int = 0
    task: Task | None = None  # without its data
    facts: dict[str, Any] = field(default_factory=dict)  # run.json, or what stands for it
    run: Path | None = None  # its run folder, where that is here

    def __repr__(self) -> str:
        """One line; `print(subject.model)` shows the layers."""
        return f"LoadedModel({self.given_name!r}: {self.name}, {self.budget})"

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
        """One line on the model and the length of its training, to accompany its numbers.

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
                f"{self.name} has no Graph Machine layers (model.body={body}), so there is "
                "nothing to record or to measure."
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
    """A run folder, one of its checkpoints, a shipped model, `hf:owner/name`, or `handmade:3x3`.

    >>> open_model("gm-4x4").model.predict(["..3...4..4...2.."]).texts
    ['4132234114233214']
    """
    kind, _, box = str(name).partition(":")
    if kind == HANDMADE:
        config = SudokuConfig(box=box or "3x3", puzzles=EXAMPLES)
        model = handmade_gm(config.box_shape)
        return LoadedModel(model, str(name), HANDMADE, task=task_of(config))
    checkpoint = open_checkpoint(name)
    saved, run = checkpoint.facts, run_above(checkpoint.folder)
    facts: dict[str, Any] = saved if run is None else read_run(run)
    if run is None and "train" in saved:  # a shipped model, without its run folder
        facts = saved | {"config": {"train": saved["train"]}}
    load_remembered(saved.get("imports"), name)
    kind = "gm" if checkpoint.config.has_edges else "transformer"
    condition = str(saved.get("condition") or facts.get("condition") or kind)
    seed = int(saved.get("seed") or facts.get("seed") or 0)
    own = saved.get("task") or facts.get("config", {}).get("task")
    try:
        task = task_of(TaskConfig.from_dict(own)) if own else None
    except ConfigError as error:
        raise CheckpointError(f"Cannot read the task config ({error}): {name}") from None
    model = checkpoint.load(GraphMachine)
    return LoadedModel(model, str(name), condition, seed, task, facts, run)


class Tried(NamedTuple):
    """Outputs of a batch: of the first try that obeys the rules, else of the first try."""

    outputs: Float[Tensor, "b q o"]
    rounds: Int[Tensor, "b"]  # over all tries of an example
    tries: Int[Tensor, "b"]  # how many there were
    valid: Bool[Tensor, "b"]  # whether one of them obeys the rules


def check_tries(task: Task, tries: int) -> None:
    """One clear line for an invalid number of tries, or a task without another form."""
    if tries < 1:
        raise ConfigError(f"tries should be at least 1, got {tries}.")
    if tries > 1 and type(task).disguise is Task.disguise:
        raise ConfigError(
            f"tries: the task {task.name} has no other form in which an example could be retried "
            "(Task.disguise)."
        )


@torch.no_grad()
def answer_in_tries(
    model: GraphMachine, task: Task, batch: Batch, rounds: Rounds, tries: int
) -> Tried:
    """Answers to a batch in up to `tries` tries, the first of them as the batch is.

    Try t of an example depends on t and its place among those that are left, on nothing random:
    the same call gives the same answers.

    >>> subject = open_model("gm-4x4")
    >>> example = subject.known_task.parse("..3...4..4...2..")
    >>> tried = answer_in_tries(subject.model, subject.known_task, example, AS_TRAINED, 4)
    >>> tried.tries.tolist(), tried.valid.tolist()
    ([1], [True])
    """
    check_tries(task, tries)
    outputs, used = answer(model, rounds, batch.inputs)
    found = Tried(
        outputs.clone(), used.clone(), torch.ones_like(used), _obeys(task, batch, outputs)
    )
    for number in range(2, tries + 1):
        left = (~found.valid).nonzero().flatten().tolist()
        if not left:
            break
        rest = batch[left]
        form = task.disguise(rest, number)
        if form is None:  # no other form is left
            break
        outputs, used = answer(model, rounds, form.batch.to(outputs.device).inputs)
        outputs = form.undo(outputs)
        obeys = _obeys(task, rest, outputs)
        found.rounds[left] += used
        found.tries[left] = number
        found.valid[left] = obeys
        better = torch.tensor(left, device=outputs.device)[obeys]
        found.outputs[better] = outputs[obeys].to(found.outputs.dtype)
    return found


@torch.no_grad()
def predict_in_tries(
    model: GraphMachine, task: Task, batch: Batch, *, tries: int, rounds: Rounds = AS_TRAINED
) -> Prediction:
    """As `predict`, for a batch of a task; examples whose answers break its rules are retried in
    another form, up to `tries` times in all.

    >>> subject = open_model("gm-4x4")
    >>> example = subject.known_task.parse("..3...4..4...2..")
    >>> found = predict_in_tries(subject.model, subject.known_task, example, tries=4)
    >>> found.texts, found.tries
    (['4132234114233214'], array([1]))
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        tried = answer_in_tries(model, task, batch.to(device), rounds, tries)
    finally:
        model.train(was_training)
    taken = None if model.core is None else tried.rounds
    found = prediction(tried.outputs, taken, batch.tokens, model.spec)
    return replace(found, tries=tried.tries.cpu().numpy())


def _obeys(task: Task, batch: Batch, outputs: Float[Tensor, "b q o"]) -> Bool[Tensor, "b"]:
    """Which answers obey the task's rules."""
    best = outputs.float().softmax(dim=-1).max(dim=-1)
    answers, sure = best.indices.cpu().numpy(), best.values.cpu().numpy()
    own = batch.to(torch.device("cpu"))
    shown = (task.show(own[[i]], answers[i], sure[i]) for i in range(len(batch)))
    return torch.tensor([one.obeys for one in shown], device=outputs.device)
