"""What a task is, as data. Your own task is a subclass with its own `name` and fields."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from graph_machine.config.base import Config, field, require
from graph_machine.errors import ConfigError, GraphMachineError
from graph_machine.registry import Registry

T = TypeVar("T", bound="TaskConfig")

MAX_SIDE = 25  # of a board: a cell is one character

TASK_CONFIGS: Registry[type["TaskConfig"]] = Registry("task", from_users=True)


@dataclass(frozen=True)
class TaskConfig(Config):
    """Base of task configs; `name` finds the subclass again when a config is read from JSON.

    >>> TASK_CONFIGS["sudoku"].name
    'sudoku'
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("name"):  # a variant that inherits its name has the place of neither
            TASK_CONFIGS.add(cls.name, cls)

    def check(self) -> None:
        """Raise ConfigError where settings contradict each other, when a run begins.

        Unlike `validate`, which sees every change: settings are given one by one.
        """

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **super().to_dict()}

    @classmethod
    def from_dict(cls: type[T], data: Any) -> T:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ConfigError("A task should be an object with a name.")
        values = dict(data)
        kind = TASK_CONFIGS[values.pop("name")]
        return super(TaskConfig, kind).from_dict(values)  # type: ignore[return-value]


def parse_box(text: str, error: type[GraphMachineError] = ConfigError) -> tuple[int, int]:
    """Rows and columns of a box such as `2x3`: the one reader of box shapes, and their bounds."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*[xX×]\s*([0-9]{1,9})\s*", text)
    if match is None:
        raise error(f"Box shape '{text}': expected ROWSxCOLS, for example 3x3 or 2x3.")
    rows, cols = int(match[1]), int(match[2])
    if min(rows, cols) < 2 or rows * cols > MAX_SIDE:
        raise error(
            f"Box shape {rows}x{cols}: rows and columns must be at least 2 and their product at "
            f"most {MAX_SIDE}."
        )
    return rows, cols


@dataclass(frozen=True)
class SudokuConfig(TaskConfig):
    """Sudoku of any box shape; `puzzles`, `clues_extra` and `data_seed` say what is generated.

    >>> SudokuConfig(box="2x3", puzzles=10_000).box
    '2x3'
    """

    name: ClassVar[str] = "sudoku"

    box: str = field("3x3", "rows x columns of a box; the board's side is their product")
    augment: Literal["none", "relabel", "all"] = field(
        "none", "training puzzles: unchanged, digits relabelled, or also lines moved"
    )
    puzzles: int = field(100_000, "puzzles to generate where no data file is given")
    clues_extra: int = field(0, "clues put back into generated (minimal) puzzles")
    data_seed: int = field(0, "seed of the generated puzzles")
    clues_start: int = field(
        0, "most clues put back into a training puzzle at the start, shrinking to clues_end"
    )
    clues_end: int = field(0, "most clues put back from the end of clues_ramp on")
    clues_ramp: float = field(0.5, "share of the steps over which they shrink")

    @property
    def box_shape(self) -> tuple[int, int]:
        """Rows and columns of a box."""
        return parse_box(self.box)

    def validate(self) -> None:
        parse_box(self.box)
        require(self.puzzles >= 20, "puzzles should be at least 20, to be split.")
        require(self.clues_extra >= 0, "clues_extra should not be negative.")
        require(self.clues_start >= 0, "clues_start should not be negative.")
        require(self.clues_end >= 0, "clues_end should not be negative.")
        require(0 < self.clues_ramp <= 1, "clues_ramp should be a share above 0, at most 1.")

    def check(self) -> None:
        rows, cols = self.box_shape
        cells = (rows * cols) ** 2
        require(
            self.clues_start <= cells,
            f"task.clues_start = {self.clues_start} should be at most the {cells} cells of a board "
            f"with boxes of {self.box}.",
        )
        require(
            self.clues_end <= self.clues_start,
            f"task.clues_end = {self.clues_end} should be at most task.clues_start = "
            f"{self.clues_start}.",
        )
