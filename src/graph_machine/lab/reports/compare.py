"""Paired comparisons of conditions.

Conditions are paired by seed: the same seed has the same split of data. The interval is Student's,
for the mean difference; the p-value comes from flipping the signs of the differences, in every way
up to 16 seeds. With few seeds the smallest possible p-value is large (2 / 2^n), and the text says
so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graph_machine.errors import MissingExtraError

DRAWS = 100_000  # of sign patterns; up to 16 seeds there are fewer, and all of them are tried


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
    around = mean - half, mean + half, float(test.pvalue)
    return Comparison(first, second, seeds, mean, *around, exact=2**n <= DRAWS)
