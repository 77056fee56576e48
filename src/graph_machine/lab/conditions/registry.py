"""Conditions: a name, and how it differs from GM. Those of this package are in conditions.toml.

A condition is a function from the base config to a changed one. To add your own:

    @condition("gm-wide", "a wider GM")
    def gm_wide(base):
        return base.with_model(d_node=128)
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from graph_machine.errors import ConfigError
from graph_machine.lab.config import TASK_CONFIGS, ExperimentConfig, SudokuConfig
from graph_machine.registry import Registry

Change = Callable[[ExperimentConfig], ExperimentConfig]
Settings = Mapping[str, Any]

HERE = Path(__file__).parent  # of the data files
BASE = ExperimentConfig()


@dataclass(frozen=True)
class Condition:
    """A named difference from the base config.

    >>> CONDITIONS["gm-rope"].changes
    {'model.position': 'rotary', 'model.position_base': 10.0}
    """

    name: str
    doc: str
    change: Change
    beyond_paper: bool = False
    task: str = BASE.task.name  # the task that it is made for

    @property
    def base(self) -> ExperimentConfig:
        """The paper's recipe, on the condition's task."""
        return BASE if self.task == BASE.task.name else BASE.replace(task=TASK_CONFIGS[self.task]())

    @property
    def config(self) -> ExperimentConfig:
        """At the paper's size; a budget changes a smaller base."""
        return self.changed(self.base)

    def changed(self, base: ExperimentConfig) -> ExperimentConfig:
        """The base as the condition changes it; an error that names a condition without result."""
        found = self.change(base)
        if not isinstance(found, ExperimentConfig):
            raise ConfigError(
                f"The condition '{self.name}' should return a changed config, got "
                f"{type(found).__name__}; end its function with: return base.with_model(...)"
            )
        return found

    @property
    def changes(self) -> dict[str, object]:
        """Setting -> value, for everything that differs from the base."""
        return self.config.differences(self.base)


CONDITIONS: Registry[Condition] = Registry("condition", "graph-machine conditions", from_users=True)
# Names in the records of earlier versions.
OLD_NAMES = {"jigsaw-transformer-told": "jigsaw-transformer-regions"}


def current_name(condition: str) -> str:
    """The current name of a condition that a run has recorded.

    >>> current_name("jigsaw-transformer-told")
    'jigsaw-transformer-regions'
    """
    return OLD_NAMES.get(condition, condition)


def condition(
    name: str, doc: str, *, beyond_paper: bool = False, task: str = BASE.task.name
) -> Callable[[Change], Change]:
    """Register a function as a condition; a name that is taken is an error.

    `task` names the task that it is made for: its base config has that task, and `train NAME` takes
    it unless `--task` says another. Left out, it is Sudoku. `beyond_paper` marks conditions that
    the paper does not have.

    >>> @condition("gm-wider-still", "a GM of width 256", beyond_paper=True)
    ... def gm_wider_still(base):
    ...     return base.with_model(d_node=256)
    """

    def add(change: Change) -> Change:
        CONDITIONS.add(name, Condition(name, doc, change, beyond_paper, task))
        return change

    return add


# What depends on the base that a condition changes: words in the rows of conditions.toml.


def twice(base: ExperimentConfig) -> ExperimentConfig:
    """Twice as wide in hidden and head sizes, twice as deep."""
    names = ("d_node", "d_attn_key", "d_attn_value", "num_layers")
    return base.with_model(**{name: 2 * getattr(base.model, name) for name in names})


def edge_sublayers(share: int) -> Change:
    """One edge sublayer for every `share` layers, so that a shallower budget keeps the ratio."""
    return lambda base: base.with_model(num_edge_sublayers=max(1, base.model.num_layers // share))


def slower(base: ExperimentConfig) -> ExperimentConfig:
    """Transformers learn little or nothing of jigsaws and mazes at GM's 4e-3 (docs/jigsaw.md)."""
    return base.with_train(peak_lr=min(base.train.peak_lr, 2e-3))


def train_times(name: str, factor: str) -> Change:
    """A training setting as a multiple of the base's: a baseline at the rate and in the steps that
    suit it (docs/yardsticks.md)."""

    def change(base: ExperimentConfig) -> ExperimentConfig:
        value = getattr(base.train, name)
        return base.with_train(**{name: type(value)(value * Fraction(factor))})

    return change


def no_layer_loss_in_sudoku(base: ExperimentConfig) -> ExperimentConfig:
    """It keeps 6x6 Sudoku from being learned (docs/recommended.md, one seed)."""
    return base.with_train(layer_loss=0.0) if base.task.name == SudokuConfig.name else base


CHANGES: dict[str, Change] = {
    **{f"edge-sublayers-{count}": edge_sublayers(32 // count) for count in (4, 8, 16)},
    "core": lambda base: base.with_model(num_layers=min(4, base.model.num_layers)),
    "no-layer-loss-in-sudoku": no_layer_loss_in_sudoku,
    **{f"rate-x{n}": train_times("peak_lr", n) for n in ("3", "15/2", "10", "15")},
    **{
        f"steps-x{n}": train_times("steps", n)
        for n in ("1/3", "37/30", "19/15", "4/3", "3/2", "8/3", "4", "5")
    },
    "slower": slower,
    "twice": twice,
}


def merged(*given: Settings) -> Iterator[Settings]:
    """Settings of model, train and task, of which later ones take the place of earlier ones."""
    for room in ("model", "train", "task"):
        yield {name: value for some in given for name, value in some.get(room, {}).items()}


def change_of(words: str, sets: Settings, *own: Settings) -> Change:
    """The change in a row of conditions.toml: settings of its `words`, its own ones, functions."""
    names = words.split()
    assert {*names} <= sets.keys() | CHANGES.keys(), words
    model, train, task = merged(*(sets.get(name, {}) for name in names), *own)

    def change(base: ExperimentConfig) -> ExperimentConfig:
        config = base.with_model(**model).with_train(**train).with_task(**task)
        for name in names:
            config = CHANGES[name](config) if name in CHANGES else config
        return config

    return change
