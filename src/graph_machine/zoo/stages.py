"""The stages of a chain of warm starts, from the first run (or model) to the one before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graph_machine.conditions.commands import training_command
from graph_machine.errors import GraphMachineError, count_of
from graph_machine.models.checkpoint import shipped
from graph_machine.training import RunFolder
from graph_machine.training.checkpoints import read_state

Stage = dict[str, Any]


def earlier_stages(facts: dict[str, Any]) -> list[Stage]:
    """What a run began with (`--init-from`), and what that began with, first one first.

    Paths are left out: a stage is described by its command, steps and time, or by a model's name.
    """
    source = facts.get("init_from")
    if source is None:
        return []
    if source in shipped():
        return [{"model": source}]
    path = Path(source)
    for folder in (path, path.parent, path.parent.parent):
        run = RunFolder(folder)
        if run.exists:
            before = run.read()
            return [*earlier_stages(before), _stage(run, path, before)]
    return [{"model": path.name}]


def begun_with(facts: dict[str, Any]) -> str:
    """What a run began with, without its path: a shipped model's name, or that it was a run."""
    source = facts["init_from"]
    return source if source in shipped() else "an earlier run"


def _stage(run: RunFolder, checkpoint: Path, facts: dict[str, Any]) -> Stage:
    """One run, as far as it had come where its weights were taken."""
    try:
        state = read_state(checkpoint if checkpoint != run.path else run.checkpoints / "latest")
        steps = state["step"]
    except GraphMachineError:  # checkpoints were tidied away: the result has to do
        state = run.read("result.json")
        steps = state["steps"]
    config = run.config()
    return {
        "command": training_command(facts),
        "steps": steps,
        "batch_size": config.train.batch_size,
        "seconds": state["seconds"],
        "cpu_seconds": state.get("cpu_seconds"),  # older runs did not count it
    }


def time_words(facts: dict[str, Any], minutes: Callable[[float], str]) -> str:
    """CPU time where it was counted: the clock also counts what else a machine did."""
    cpu = facts.get("cpu_seconds")
    return f"{minutes(cpu)} of CPU" if cpu else minutes(facts["seconds"])


def stage_lines(stages: list[Stage], minutes: Callable[[float], str]) -> list[str]:
    """Stages as lines of a card."""
    lines = []
    for number, stage in enumerate(stages, start=1):
        if "model" in stage:
            lines.append(f"{number}. The weights of `{stage['model']}`, as far as they fit.")
            continue
        begun = "" if number == 1 else f", begun with stage {number - 1}"
        size = f"{count_of(stage['steps'], 'steps')} of {stage['batch_size']}"
        lines.append(
            f"{number}. {size} in {time_words(stage, minutes)}{begun}: `{stage['command']}`"
        )
    return lines
