"""Which column of a puzzle file holds what: inferred from its first line, a header or a row."""

from dataclasses import dataclass

from graph_machine.errors import DataError
from graph_machine.tasks.sudoku.board import SYMBOLS, BoxShape

HEADER = "id,puzzle,solution,clues,difficulty"
KNOWN = (HEADER, "puzzle,solution", "source,question,answer,rating")
# What a column is called in files that people have; columns of other names are not read.
NAMES = {
    "puzzle": ("puzzle", "puzzles", "quiz", "quizzes", "question"),
    "solution": ("solution", "solutions", "answer"),
    "clues": ("clues",),
    "rating": ("difficulty", "rating"),
}
# Columns that only files of another task have: what such a file holds, and who takes it.
OTHERS = {
    "regions": ("jigsaw puzzles", "'data info', 'data rate' and 'train' take it", "jigsaw"),
    "maze": ("mazes", "'data info' and 'train' take it", "maze"),
}
# Ratings of sudoku-extreme count the backtracks of one solver, ours are depths of guesses.
BACKTRACKS = "backtracks"
CELLS = frozenset(SYMBOLS + SYMBOLS.lower() + "0")


@dataclass(frozen=True)
class Layout:
    """Numbers of columns; None where a file has no such column."""

    names: tuple[str, ...]  # of all columns
    puzzle: int
    solution: int | None = None
    clues: int | None = None
    rating: int | None = None
    has_header: bool = True

    @property
    def columns(self) -> int:
        return len(self.names)

    @property
    def scale(self) -> str | None:
        """What the ratings measure, where that is not the data set's difficulty."""
        extreme = self.rating is not None and self.names[self.puzzle] == "question"
        return BACKTRACKS if extreme else None

    def __str__(self) -> str:
        return ",".join(self.names)


def find_layout(line: str) -> Layout | None:
    """The layout of a file that begins with this line; None for a line that tells nothing."""
    words = tuple(word.strip().strip('"').lower() for word in line.strip().split(","))
    found = {
        kind: [number for number, word in enumerate(words) if word in names]
        for kind, names in NAMES.items()
    }
    if len(found["puzzle"]) == 1 and all(len(numbers) <= 1 for numbers in found.values()):
        place = {kind: numbers[0] if numbers else None for kind, numbers in found.items()}
        return Layout(words, **place)  # pyrefly: ignore[bad-argument-type]
    fields = [field.strip() for field in line.split(",")]
    if len(fields) <= 2 and len(set(map(len, fields))) == 1 and all(map(_is_board, fields)):
        if len(fields) == 1:
            return Layout(("puzzle",), 0, has_header=False)
        return Layout(("puzzle", "solution"), 0, 1, has_header=False)
    return None


def layout_of(line: str, path: object) -> Layout:
    """The layout of a file by its first line; an error that lists the known ones."""
    words = [word.strip() for word in line.split(",")]
    for column, (what, who, task) in OTHERS.items():
        if column in words:
            raise DataError(f"A file of {what}, not of Sudoku; {who} with --task {task}: {path}")
    found = find_layout(line)
    if found is None:
        known = "', '".join(KNOWN)
        raise DataError(
            f"The first line should be '{known}' or a puzzle, got '{line.strip()[:80]}': {path}"
        )
    return found


def _is_board(text: str) -> bool:
    return bool(BoxShape.candidates(len(text))) and CELLS.issuperset(text)
