"""Named budgets: how much of the paper's recipe a run can afford.

A task has a base config for each budget; a condition then changes that base, so every condition of
a budget differs from its neighbours only in what the paper says it does.

    add_family("shift", "shift-gm", cpu=lambda: BASE.replace(task=ShiftConfig()))

A task without a family is run on the base of its budget, with the task's own defaults.
"""

import shlex
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.conditions.registry import BASE, CONDITIONS, HERE, current_name, merged
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


_bases: dict[str, Any] = tomllib.loads((HERE / "bases.toml").read_text(encoding="utf-8"))
_usual = _bases.pop("usual")


def made_base(name: str, budget: str, **own: Any) -> ExperimentConfig:
    """The base config of a task, from bases.toml and its `own` settings (by model, train, task)."""
    about = _bases.get(name, {})
    rooms = (_usual.get(budget, {}), about.get("all", {}), about.get(budget, {}), own)
    model, train, task = merged(*rooms)
    base = BASE.replace(task=TASK_CONFIGS[name](**task))
    return base.with_model(**model).with_train(**train)


def sudoku_for_cpu(box: str = "2x2") -> ExperimentConfig:
    """A few minutes on two cores for 4x4 boards, more for larger ones.

    There are only some 3,500 minimal 4x4 puzzles up to relabelling, so every condition relabels its
    training puzzles: no test puzzle is met in training under any labels, and none is learned by
    heart. (Moving lines as well could turn a training puzzle into a test puzzle.)
    """
    layers, steps, batch, puzzles = {
        "2x2": (6, 500, 64, 3_000),
        "2x3": (6, 1_000, 32, 100_000),
    }.get(box, (8, 2_000, 64, 100_000))
    train = {
        "steps": steps,
        "batch_size": batch,
        # So few steps of 6x6 boards want a higher rate, in GM and Transformers (docs/evidence.md).
        "peak_lr": 4e-3 if box == "2x3" else BASE.train.peak_lr,
        "eval_every": 100,
        "eval_examples": 1_024,
        "test_examples": None if box == "2x2" else 1_000,  # of 4x4 puzzles there are few
        "save_every": 100,
    }
    task = {"box": box, "puzzles": puzzles, "augment": "relabel"}
    return made_base("sudoku", "cpu", model={"num_layers": layers}, train=train, task=task)


def sudoku_for_smoke(box: str = "2x2") -> ExperimentConfig:
    """4x4 boards, made in a moment."""
    return made_base("sudoku", "smoke", task={"box": box, "puzzles": 2_000})


_paper: Base = lambda box="3x3": BASE.with_task(box=box)  # noqa: E731
add_family("sudoku", "gm", size="box", paper=_paper, cpu=sudoku_for_cpu, smoke=sudoku_for_smoke)
for _name in _bases:
    _by_budget: dict[str, Base] = {budget: partial(made_base, _name, budget) for budget in BUDGETS}
    FAMILIES.add(_name, Family(_name, f"{_name}-gm", _by_budget))


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
    """The setting that the base of a task depends on, and its value there; usually none."""
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
