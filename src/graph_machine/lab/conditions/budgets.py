"""Named budgets: how much of the paper's recipe a run can afford.

A task has a base config for each budget (`families.py`); a condition then changes that base, so
every condition of a budget differs from its neighbours only in what the paper says it does.
"""

from collections.abc import Sequence

from graph_machine.errors import ConfigError
from graph_machine.lab.conditions.families import FAMILIES
from graph_machine.lab.conditions.registry import BASE, CONDITIONS
from graph_machine.lab.config import TASK_CONFIGS, ExperimentConfig, TaskConfig
from graph_machine.registry import Registry

BUDGETS: Registry[str] = Registry("budget", "graph-machine train --help")  # name -> what it is
BUDGETS.add("paper", "the recipe at full size")
BUDGETS.add("cpu", "small examples, minutes on two cores")
BUDGETS.add("smoke", "seconds, to see that everything runs")


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
