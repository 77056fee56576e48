"""Tasks on boards beyond Sudoku: jigsaw Sudoku and mazes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from graph_machine.config.base import field, require
from graph_machine.config.task import TaskConfig

SMALLEST_SIDE, LARGEST_SIDE = 4, 64  # of mazes


@dataclass(frozen=True)
class JigsawConfig(TaskConfig):
    """Sudoku whose regions differ from puzzle to puzzle.

    >>> JigsawConfig(side=6).name
    'jigsaw'
    """

    name: ClassVar[str] = "jigsaw"

    side: int = field(6, "rows and columns of a board, and cells of a region")
    told: bool = field(False, "every token also contains the region of its cell (a baseline)")
    augment: Literal["none", "relabel", "all"] = field(
        "none",
        "training puzzles: unchanged, digits relabelled, or boards also rotated and mirrored",
    )
    puzzles: int = field(59_000, "puzzles to generate where no data file is given")
    clues_extra: int = field(8, "clues put back into generated (minimal) puzzles, 0 to this many")
    data_seed: int = field(0, "seed of the generated puzzles")

    def validate(self) -> None:
        require(3 <= self.side <= 25, f"side should be 3 to 25, got {self.side}.")
        require(
            self.puzzles >= 20, f"puzzles should be at least 20, to be split, got {self.puzzles}."
        )
        require(self.clues_extra >= 0, "clues_extra should not be negative.")


@dataclass(frozen=True)
class MazeConfig(TaskConfig):
    """The shortest path through a maze on a grid of cells.

    >>> MazeConfig(side=11).name
    'maze'
    """

    name: ClassVar[str] = "maze"

    side: int = field(9, "rows and columns of cells, walls included")
    loops: float = field(0.05, "share of the walls between two passages that are opened again")
    shortest: int | None = field(None, "fewest steps of a path; none: the side of the maze")
    learned_places: bool = field(
        False, "every cell has an embedding of its place; without, a model takes mazes of any side"
    )
    mazes: int = field(50_000, "mazes to generate where no data file is given")
    data_seed: int = field(0, "seed of the generated mazes")

    @property
    def fewest_steps(self) -> int:
        """Steps of the shortest path that a maze may have."""
        return self.side if self.shortest is None else self.shortest

    def validate(self) -> None:
        require(
            SMALLEST_SIDE <= self.side <= LARGEST_SIDE,
            f"side should be {SMALLEST_SIDE} to {LARGEST_SIDE}, got {self.side}.",
        )
        require(0 <= self.loops <= 1, "loops should be a share, from 0 to 1.")
        require(
            1 <= self.fewest_steps <= 2 * self.side,
            f"shortest should be 1 to twice the side ({2 * self.side}), got {self.fewest_steps}.",
        )
        require(self.mazes >= 20, f"mazes should be at least 20, to be split, got {self.mazes}.")
