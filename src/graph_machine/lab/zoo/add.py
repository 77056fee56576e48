"""Models that ship with the package: from a finished run to a folder in `zoo/models` with its card.

config.json        what the model is, and which data and seed it was trained with
model.safetensors  its weights in half precision
card.json          facts: budget, command, accuracy by difficulty, what was not shown
README.md          the same for people, rendered from card.json
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from graph_machine import files
from graph_machine.errors import CheckpointError, ConfigError, GraphMachineError
from graph_machine.files import atomic_folder, settle, shipped, write_json
from graph_machine.lab.conditions.budgets import training_command
from graph_machine.lab.conditions.registry import BASE, CONDITIONS
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.opening import LoadedModel, core_words
from graph_machine.lab.run_files import RunInfo
from graph_machine.lab.tasks.base import Task, task_of
from graph_machine.lab.training import RunFolder
from graph_machine.lab.training.checkpoints import read_state
from graph_machine.lab.training.flops import flops_per_step
from graph_machine.lab.zoo.assess import assess, held_out, own_test_split
from graph_machine.lab.zoo.cards import CARD_FILE, Card, Stage, Training, interval_key, render_card
from graph_machine.models import GraphMachine, save_model
from graph_machine.models.checkpoint import WEIGHTS_FILE

LARGEST = 5_000_000  # bytes of weights in the package; larger models are made by their command
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
OWN = "test split of its own run"
# Entries of an assessment that a card has elsewhere, or not at all.
OF_THE_WHOLE = {
    "examples", "intervals", "loss", "groups", "mixes", "references", "model", "parameters", "data",
    "trained_on", "seconds", "examples_per_second",
}  # fmt: skip


def add_model(
    run: str | Path,
    name: str,
    *,
    also: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    limit: int | None = None,
    batch_size: int = 256,
    into: Path | None = None,
    replace: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> Path:
    """Make a model with its card from a finished run; the folder appears whole or not at all.

    The half-precision weights are tested on the run's own test split and on the puzzle files of
    `also` (label -> path). `into` names a folder outside the package.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"A name has small letters, digits, '-' and '.', got '{name}'.")
    folder = RunFolder(Path(run))
    run_info = folder.info()
    if not folder.finished:
        raise CheckpointError(f"This run is not finished (there is no result.json): {run}")
    task = task_of(folder.config().task)
    training_command(run_info.to_dict())  # a run without one is refused before anything is tested
    target = (files.ZOO if into is None else into) / name
    settle(target)
    if target.exists() and not replace:
        raise CheckpointError(f"A model of this name already exists; --replace it: {target}")
    with atomic_folder(target) as made:
        _write_weights(folder, made)
        size = (made / WEIGHTS_FILE).stat().st_size
        if into is None and size >= LARGEST:
            raise CheckpointError(
                f"Its weights take {size / 1e6:.1f} MB in half precision; models of the package "
                f"stay below {LARGEST / 1e6:.0f} MB. Write it elsewhere with --into: {run}"
            )
        # What is tested is what is shipped: the weights as they were written.
        about = (run_info.condition or "custom", run_info.seed, task, run_info.to_dict())
        subject = LoadedModel(GraphMachine.from_pretrained(made), name, *about, folder.path)
        accuracy = []
        for label, path in {OWN: None, **(also or {})}.items():
            report(f"Testing on: {label}")
            accuracy.append(_accuracy(subject, label, path, limit, batch_size))
        card = _card(subject, size, accuracy, list(notes))
        write_json(made / CARD_FILE, card.to_dict())
        render_card(made)
    return target


def _write_weights(folder: RunFolder, made: Path) -> None:
    """The model in half precision, with what `evaluate` and `stats` need of a run folder."""
    run, config = folder.info(), folder.config()
    # Without a path: a shipped model's name, or that it was a run.
    begun = run.init_from if run.init_from in shipped() else "an earlier run"
    save_model(
        GraphMachine.from_pretrained(folder.model),
        made,
        half=True,
        task=config.task.to_dict(),
        seed=run.seed,
        condition=run.condition,
        budget=run.budget,
        data=data_without_path(run),
        **({"imports": run.imports} if run.imports else {}),
        **({"init_from": begun} if run.init_from else {}),
        train={"steps": config.train.steps, "batch_size": config.train.batch_size},
    )


def _card(
    subject: LoadedModel, size: int, accuracy: list[dict[str, Any]], notes: list[str]
) -> Card:
    assert subject.run is not None
    folder = RunFolder(subject.run)
    run, config, result = folder.info(), folder.config(), folder.result()
    assert run.condition is not None
    operations = result.flops_per_step or flops_per_step(config)  # older runs lack it
    task = own_test_split(subject)
    facts: dict[str, Any] = {n: getattr(run, n) for n in ("budget", "seed", "commit", "versions")}
    facts |= {name: run.hardware.get(name) for name in ("cpu", "threads", "accelerator")}
    return Card(
        name=subject.given_name,
        task=config.task.name,
        board=task.label,
        box=None if task.blocks is None else "x".join(map(str, task.blocks)),
        metrics=result.metrics,
        examples=task.examples_word,
        condition=run.condition,
        condition_doc=CONDITIONS[run.condition].doc,
        parameters=subject.model.num_parameters,
        bytes=size,
        puzzles=task.data_words,
        data=data_without_path(run),
        training=Training(
            command=training_command(run.to_dict()),
            earlier=earlier_stages(run),
            steps=config.train.steps,
            batch_size=config.train.batch_size,
            layers=config.model.num_layers,
            core=core_words(config.model),
            seconds=result.seconds,
            cpu_seconds=result.cpu_seconds,
            flops=None if operations is None else operations * config.train.steps,
            **facts,
        ),
        full_precision=result.values
        | ({"puzzles": result.test_examples} if result.test_examples else {}),
        example=_example(subject),
        not_shown=not_shown(config, run.data.source),
        accuracy=accuracy,
        notes=notes,
    )


def data_without_path(run: RunInfo) -> dict[str, Any]:
    """The data of a run with the name of its file only."""
    return asdict(run.data) | {"source": Path(run.data.source).name}


def earlier_stages(run: RunInfo) -> list[Stage]:
    """The runs before this one (`--init-from`), the first of the chain first.

    Paths are left out: a stage is described by its command, steps and time, or by a model's name.
    """
    source = run.init_from
    if source is None:
        return []
    if source in shipped():
        return [{"model": source}]
    path = Path(source)
    for folder in (path, path.parent, path.parent.parent):
        earlier = RunFolder(folder)
        if earlier.exists:
            return [*earlier_stages(earlier.info()), _stage(earlier, path)]
    return [{"model": path.name}]


def _stage(run: RunFolder, checkpoint: Path) -> Stage:
    """One run, up to the step at which its weights were taken."""
    try:
        state = read_state(checkpoint if checkpoint != run.path else run.checkpoints / "latest")
        steps, seconds, cpu = state["step"], state["seconds"], state.get("cpu_seconds")
    except GraphMachineError:  # checkpoints were tidied away: the result has to do
        result = run.result()
        steps, seconds, cpu = result.steps, result.seconds, result.cpu_seconds
    return {
        "command": training_command(run.info().to_dict()),
        "steps": steps,
        "batch_size": run.config().train.batch_size,
        "seconds": seconds,
        "cpu_seconds": cpu,  # older runs did not count it
    }


def _accuracy(
    subject: LoadedModel, label: str, path: str | None, limit: int | None, batch_size: int
) -> dict[str, Any]:
    found = assess(subject, path, limit=limit, batch_size=batch_size)
    return {
        "on": label,
        "file": None if path is None else Path(path).name,
        **_card_part(found),
        "seen": held_out(subject, path)[0].seen_in_training(own_test_split(subject), limit),
        **{
            f"by_{group}": {label: _card_part(part) for label, part in parts.items()}
            for group, parts in found["groups"].items()
        },
        "natural_mix": next((_card_part(mix) for mix in found["mixes"].values()), None),
        "references": {name: _card_part(part) for name, part in found["references"].items()},
    }


def _card_part(part: dict[str, Any]) -> dict[str, Any]:
    """Metrics as a card has them: `board_interval` beside `board_accuracy`."""
    kept = {k: v for k, v in part.items() if k not in OF_THE_WHOLE}
    for name, low_high in part.get("intervals", {}).items():
        kept[interval_key(name)] = low_high
    return kept | ({"puzzles": part["examples"]} if "examples" in part else {})


def _example(subject: LoadedModel) -> dict[str, Any] | None:
    """A test puzzle to begin with: the first that the model solves, else the first."""
    spec = subject.model.spec
    if spec.alphabet is None or spec.answers is None:
        return None
    task: Task = own_test_split(subject)
    batch = next(iter(task.split_batches("test", 64, 64)))
    answers = subject.model.predict(batch.tokens, batch.graph).answers
    right = task.score(torch.from_numpy(answers), batch)["example_right"].numpy()
    row = int(right.argmax())
    return {
        "puzzle": task.text(batch[[row]]),
        "solution": "".join(spec.answers[answer] for answer in batch.answers[row].tolist()),
        "solved": bool(right[row]),
    }


def not_shown(config: ExperimentConfig, source: str) -> list[str]:
    """What these numbers do not show."""
    lines = []
    if config.task.name != BASE.task.name:
        return ["How conditions compare: this is one model of one seed."]
    train, model, paper = config.train, config.model, BASE
    mine = (train.steps, train.batch_size, model.num_layers, task_of(config.task).label)
    theirs = (paper.train.steps, paper.train.batch_size, paper.model.num_layers, "9x9")
    if mine != theirs or source == "generated":
        lines.append(
            f"The paper's result: it was measured after {theirs[0]:,} steps of {theirs[1]} puzzles "
            f"of Sudoku-3M with {theirs[2]} layers on {theirs[3]} boards; this is {mine[0]:,} "
            f"steps of {mine[1]} with {mine[2]} layers on {mine[3]} boards."
        )
    lines.append(
        "How conditions compare: this is one model of one seed, and docs/evidence.md has several "
        "seeds of each."
    )
    if source == "generated":
        lines.append(
            "Puzzles of other makers or with other numbers of clues, beyond the tables here."
        )
    lines.append("Boards of another size: it cannot read them.")
    return lines
