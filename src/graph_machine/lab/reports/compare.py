"""Metrics in the words of a report, and paired comparisons of conditions.

Conditions are paired by seed: the same seed has the same split of data. The interval is Student's,
for the mean difference; the p-value comes from flipping the signs of the differences, in every way
up to 16 seeds. With few seeds the smallest possible p-value is large (2 / 2^n), and the text says
so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graph_machine.errors import MissingExtraError

DRAWS = 100_000  # of sign patterns; up to 16 seeds there are fewer, and all of them are tried


class Measure(NamedTuple):
    """One metric of a task, in the words of a report.

    >>> Measure("board_accuracy", "boards").heading
    'boards %'
    >>> Measure("bits_per_byte", "bits per byte", False, False).best([3.4, 3.3])
    3.3
    """

    name: str  # its key in result.json
    title: str
    share: bool = True  # shown in percent
    higher_is_better: bool = True

    def points(self, value: float) -> float:
        """A recorded value as it is printed: a share in percent, as in the paper."""
        return 100.0 * value if self.share else value

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


@dataclass(frozen=True)
class Comparison:
    """Mean difference `first - second` over the seeds that both have.

    >>> print(compare("gm", "transformer", {0: 96.0, 1: 95.0}, {0: 83.0, 1: 84.0}))
    gm - transformer: +12.0 (95% interval -0.7 to +24.7), p = 0.5, 2 seeds: too few ...
    """

    first: str
    second: str
    seeds: tuple[int, ...]
    mean: float
    low: float | None  # 95% interval; None below two seeds
    high: float | None
    p_value: float | None  # None below two seeds
    exact: bool = True

    @property
    def smallest_p(self) -> float:
        """The p-value if all seeds agree: the smallest that this number of seeds can give."""
        return min(1.0, 2.0 ** (1 - len(self.seeds)))

    @property
    def note(self) -> str:
        """What the number of seeds does not allow; empty if it allows a test."""
        n = len(self.seeds)
        if n < 2:
            return "one seed: no test is possible"
        if self.smallest_p > 0.05:
            return f"{n} seeds: too few for p below {self.smallest_p:g}, whatever the difference"
        return ""

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 1) -> str:
        """One line, with `digits` decimal places."""
        text = f"{self.first} - {self.second}: {self.mean:+.{digits}f}"
        if self.low is not None and self.high is not None:
            text += f" (95% interval {self.low:+.{digits}f} to {self.high:+.{digits}f})"
        if self.p_value is not None:
            text += f", p = {self.p_value:.3g}"
        return text + ", " + (self.note or f"{len(self.seeds)} seeds")


def compare(
    first: str, second: str, scores: Mapping[int, float], others: Mapping[int, float]
) -> Comparison | None:
    """Paired comparison of two conditions' scores by seed; None if they share no seed.

    >>> compare("gm", "transformer", {0: 96.0, 1: 95.0}, {0: 83.0, 1: 84.0}).mean
    12.0
    """
    seeds = tuple(sorted(scores.keys() & others.keys()))
    if not seeds:
        return None
    differences = np.array([scores[s] - others[s] for s in seeds])
    mean, n = float(differences.mean()), len(seeds)
    if n < 2:
        return Comparison(first, second, seeds, mean, None, None, None)
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("scipy", "analysis", "A paired test") from None
    half = float(stats.t.ppf(0.975, n - 1) * stats.sem(differences))
    # Whole numbers have exact sums, so that sign patterns of the same sum count as equal.
    whole = np.rint(differences * 1e9)
    test = stats.permutation_test(
        (whole,), np.sum, permutation_type="samples", n_resamples=DRAWS, vectorized=True, rng=0
    )
    return Comparison(
        first, second, seeds, mean, mean - half, mean + half, float(test.pvalue), 2**n <= DRAWS
    )
