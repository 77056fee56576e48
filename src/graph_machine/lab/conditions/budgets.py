"""Named budgets: how much of the paper's recipe a run can afford.

A task has a base config for each budget; a condition then changes that base, so every condition of
a budget differs from its neighbours only in what the paper says it does.

    add_family("shift", "shift-gm", cpu=lambda: BASE.replace(task=ShiftConfig()))

A task without a family is run on the base of its budget, with the task's own defaults.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.conditions.registry import BASE, CONDITIONS, Settings, current_name
from graph_machine.lab.config import TASK_CONFIGS, ExperimentConfig, TaskConfig
from graph_machine.registry import Registry

BUDGETS: Registry[str] = Registry("budget", "graph-machine train --help")  # name -> what it is
BUDGETS.add("paper", "the recipe at full size")
BUDGETS.add("cpu", "small examples, minutes on two cores")
BUDGETS.add("smoke", "seconds, to see that everything runs")


Base = Callable[..., ExperimentConfig]


@dataclass(frozen=True)
class Family:
    """A task, the condition that is trained when none is named, and its base configs.

    >>> FAMILIES["jigsaw"].condition
    'jigsaw-gm'
    """

    task: str
    condition: str
    bases: dict[str, Base]  # by budget
    size: str = ""  # the setting that they may be called with, if any: `box`, in Sudoku


FAMILIES: Registry[Family] = Registry("task with its own budgets")


def add_family(task: str, condition: str, *, size: str = "", **bases: Base) -> None:
    """Register the base configs of a task, by budget; with `size`, they take that setting.

    >>> from graph_machine.lab.conditions import base_for
    >>> add_family("my-task", "gm", smoke=lambda: base_for("smoke"))
    >>> FAMILIES["my-task"].condition
    'gm'
    """
    FAMILIES.add(task, Family(task, condition, bases, size))


def add_bases(paper: TaskConfig, *, cpu: ExperimentConfig, smoke: ExperimentConfig) -> None:
    """The family of a task beyond the paper; `paper` is the task at full size."""
    name, whole = paper.name, BASE.replace(task=paper)
    add_family(name, f"{name}-gm", paper=lambda: whole, cpu=lambda: cpu, smoke=lambda: smoke)


def cpu_base(
    task: TaskConfig, train: Settings, *, layers: int, width: int = BASE.model.d_node
) -> ExperimentConfig:
    """Minutes on one core; `train` are settings of training."""
    usual = {"batch_size": 32, "log_every": 10, "eval_every": 250, "eval_examples": 256}
    base = BASE.replace(task=task).with_model(num_layers=layers, d_node=width)
    return base.with_train(**{**usual, "save_every": 250, **train})


def smoke_base(task: TaskConfig, train: Settings | None = None) -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    usual = {"steps": 20, "batch_size": 16, "log_every": 5, "eval_every": 10, "eval_examples": 64}
    small = BASE.replace(task=task).with_model(num_layers=2, d_node=16)
    return small.with_train(**{**usual, "save_every": 5, **(train or {})})


def base_for(budget: str, size: str | None = None, task: str = BASE.task.name) -> ExperimentConfig:
    """The config that conditions of this budget change.

    `size` is for tasks whose base depends on one (the box, in Sudoku); default: the budget's own.

    >>> base_for("cpu").model.num_layers
    6
    """
    assert BUDGETS[budget]  # an unknown name is an error there
    usual = FAMILIES[BASE.task.name].bases[budget]
    own = FAMILIES[task].bases.get(budget) if task in FAMILIES else None
    if size is None:
        return own() if own else usual().replace(task=TASK_CONFIGS[task]())
    if own is None or not FAMILIES[task].size:
        sized = [f"--{f.size} is for {f.task}" for f in FAMILIES.values() if f.size]
        raise ConfigError(f"{', '.join(sized)}; the task {task} has its own settings (--set).")
    return own(size)


def size_of(task: TaskConfig) -> tuple[str, str | None]:
    """The setting that the base of a task depends on, and its value there; none as a rule."""
    name = FAMILIES[task.name].size if task.name in FAMILIES else ""
    return name, str(getattr(task, name)) if name else None


def config_for(
    condition: str,
    budget: str = "paper",
    size: str | None = None,
    settings: Sequence[str] = (),
    task: str | None = None,
) -> ExperimentConfig:
    """A condition at a budget, resolved; then settings as a user types them, later ones last.

    `task` defaults to the one that the condition is made for.

    >>> config_for("transformer", "cpu").differences(base_for("cpu"))
    {'model.num_edges': 0, 'model.num_edge_sublayers': 0, 'model.attention_experts': 'node'}
    """
    chosen = CONDITIONS[condition]
    config = chosen.changed(base_for(budget, size, chosen.task if task is None else task))
    return with_settings(config, settings)


def with_settings(config: ExperimentConfig, settings: Sequence[str]) -> ExperimentConfig:
    """Changed by `KEY=VALUE` texts, later ones last; only the whole is checked.

    >>> settings = ["task.test_hops=64", "task.nodes=80"]  # 40 nodes are too few for 64 hops
    >>> with_settings(base_for("paper", task="pointers"), settings).task.nodes
    80
    """
    texts: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=VALUE, got '{setting}'.")
        texts.pop(key, None)
        texts[key] = value
    return config.set_all(texts)


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
