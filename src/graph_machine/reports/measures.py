"""What the numbers of a report are: the metrics of a task, as its results tell them."""

from collections.abc import Collection
from typing import NamedTuple


class Measure(NamedTuple):
    """One metric of a task, in the words of a report.

    >>> Measure("board_accuracy", "boards").heading
    'boards %'
    >>> Measure("bits_per_byte", "bits per byte", False, False).best([3.4, 3.3])
    3.3
    """

    name: str  # its key in result.json
    title: str
    share: bool = True  # told in percent
    higher_is_better: bool = True

    @property
    def heading(self) -> str:
        """Of its column: `boards %`, `bits per byte`."""
        return f"{self.title} %" if self.share else self.title

    @property
    def digits(self) -> int:
        """Decimal places: a share is in percent."""
        return 1 if self.share else 3

    @property
    def unit(self) -> str:
        """What a value is: `board accuracy in percent`."""
        return f"{self.words} in percent" if self.share else self.title

    @property
    def difference(self) -> str:
        """What a difference of two values is: `points of board accuracy`."""
        of = f"points of {self.words}" if self.share else self.title
        return of if self.higher_is_better else f"{of} (lower is better)"

    @property
    def words(self) -> str:
        """Its name as words."""
        return self.name.replace("_", " ")

    @property
    def extreme(self) -> str:
        """The word for its best value."""
        return "max" if self.higher_is_better else "min"

    def best(self, values: Collection[float]) -> float | None:
        """The best of some values; None of none."""
        return (max if self.higher_is_better else min)(values, default=None)

    def show(self, value: float) -> str:
        """A value beside its name: `80.0%`, `3.376`."""
        return f"{value:.{self.digits}f}{'%' if self.share else ''}"
