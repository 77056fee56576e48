"""The command line that trains a run again, from its run.json."""

import shlex
from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError
from graph_machine.lab.conditions.budgets import BUDGETS, base_for, config_for, size_of
from graph_machine.lab.conditions.registry import CONDITIONS, current_name
from graph_machine.lab.config import ExperimentConfig


def setting_text(value: Any) -> str:
    """A value as `--set` reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(str(part) for part in value)
    return str(value)


def training_command(run: dict[str, Any]) -> str:
    """`graph-machine train ...` with the condition, budget, board, seed and changed settings.

    Of a data file only the name is kept. The command is checked to give the same config.
    """
    config = ExperimentConfig.from_dict(run["config"])
    condition, budget = current_name(str(run["condition"])), run["budget"]
    if condition not in CONDITIONS or budget not in BUDGETS:
        raise CheckpointError(
            f"No command trains this run again: its condition is '{condition}' and its budget "
            f"'{budget}', and both should be registered ones."
        )
    words = ["graph-machine", "train", condition, "--budget", budget]
    own = config.task.name
    option, size = size_of(config.task)
    if size and size != size_of(base_for(budget, task=own).task)[1]:
        words += [f"--{option}", size]
    if own != CONDITIONS[condition].task:
        words += ["--task", own]
    for name in run.get("imports", []):
        words += ["--import", Path(name).name]
    words += ["--seed", str(run["seed"])]
    if run["data"]["source"] != "generated":
        words += ["--data", Path(run["data"]["source"]).name]
    expected = config_for(condition, budget, size, task=own)
    changed = {k: setting_text(v) for k, v in config.differences(expected).items()}
    assert expected.set_all(changed) == config, "the settings of a run should be readable by --set"
    if changed:
        words += ["--set", *(f"{key}={text}" for key, text in changed.items())]
    return shlex.join(words)
