"""What a task is, as data. A task of one's own is a subclass with its own `name` and fields."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from graph_machine.config.base import Config, field, require
from graph_machine.errors import ConfigError
from graph_machine.registry import Registry

T = TypeVar("T", bound="TaskConfig")

TASK_CONFIGS: Registry[type["TaskConfig"]] = Registry("task")


@dataclass(frozen=True)
class TaskConfig(Config):
    """Base of task configs; `name` finds the subclass again when reading JSON."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.name and cls.name not in TASK_CONFIGS:
            TASK_CONFIGS.add(cls.name, cls)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **super().to_dict()}

    @classmethod
    def from_dict(cls: type[T], data: Any) -> T:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ConfigError("A task should be an object with a name.")
        values = dict(data)
        kind = TASK_CONFIGS[values.pop("name")]
        return super(TaskConfig, kind).from_dict(values)  # type: ignore[return-value]


@dataclass(frozen=True)
class SudokuConfig(TaskConfig):
    """Sudoku of any box shape; `puzzles`, `clues_extra` and `data_seed` say what is generated."""

    name: ClassVar[str] = "sudoku"

    box: str = field("3x3", "rows x columns of a box; the board's side is their product")
    augment: Literal["none", "relabel", "all"] = field(
        "none", "training puzzles: as they are, digits relabelled, or also lines moved"
    )
    puzzles: int = field(100_000, "puzzles to generate where no data file is given")
    clues_extra: int = field(0, "clues put back into generated (minimal) puzzles")
    data_seed: int = field(0, "seed of the generated puzzles")
    clues_start: int = field(
        0, "most clues put back into a training puzzle at the start, shrinking to none"
    )
    clues_ramp: float = field(0.5, "share of the steps over which they shrink")

    @property
    def box_shape(self) -> tuple[int, int]:
        rows, _, cols = self.box.partition("x")
        return int(rows), int(cols)

    def validate(self) -> None:
        rows, cross, cols = self.box.partition("x")
        require(
            cross == "x" and rows.isdigit() and cols.isdigit(),
            f"box should look like 3x3 (rows x columns), got '{self.box}'.",
        )
        require(1 <= int(rows) <= 6 and 1 <= int(cols) <= 6, "box sides should be 1 to 6.")
        require(int(rows) * int(cols) >= 2, "a board needs a side of at least 2.")
        require(self.puzzles >= 20, "puzzles should be at least 20, to be split.")
        require(self.clues_extra >= 0, "clues_extra should not be negative.")
        require(self.clues_start >= 0, "clues_start should not be negative.")
        require(0 < self.clues_ramp <= 1, "clues_ramp should be a share above 0, at most 1.")
