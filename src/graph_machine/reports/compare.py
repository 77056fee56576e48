"""Is one condition better than another? Paired by seed: the same seed has the same split of data.

The interval is Student's, for the mean difference; the p-value is exact, from flipping the signs of
the differences in every way. With few seeds the smallest p-value that can occur is large (2 / 2^n),
and the text says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

EXACT_UP_TO = 16  # seeds; beyond, signs are drawn instead of enumerated
DRAWS = 100_000


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
        """The p-value if all seeds agree: no test on so few seeds can say more."""
        return min(1.0, 2.0 ** (1 - len(self.seeds)))

    @property
    def note(self) -> str:
        """What the number of seeds does not allow to say; empty if nothing."""
        n = len(self.seeds)
        if n < 2:
            return "one seed: no test is possible"
        if self.smallest_p > 0.05:
            return f"{n} seeds: too few for p below {self.smallest_p:g}, whatever the difference"
        return ""

    def __str__(self) -> str:
        return self.told()

    def told(self, digits: int = 1) -> str:
        """One line, with so many decimal places."""
        text = f"{self.first} - {self.second}: {self.mean:+.{digits}f}"
        if self.low is not None and self.high is not None:
            text += f" (95% interval {self.low:+.{digits}f} to {self.high:+.{digits}f})"
        if self.p_value is not None:
            text += f", p = {self.p_value:.3g}"
        return text + ", " + (self.note or f"{len(self.seeds)} seeds")


def beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 400):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1.0 + step * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + step / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges fast on this side of the mean; the other side by symmetry.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * beta_fraction(a, b, x) / a
    return 1.0 - front * beta_fraction(b, a, 1.0 - x) / b


def t_two_sided(t: float, degrees: int) -> float:
    """P(|T| > t) of Student's t."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def t_quantile(degrees: int, level: float = 0.95) -> float:
    """The t with P(|T| > t) = 1 - level, by bisection."""
    low, high = 0.0, 1.0
    while t_two_sided(high, degrees) > 1 - level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, degrees) > 1 - level else (low, middle)
    return (low + high) / 2


def sign_flip_p(differences: np.ndarray) -> tuple[float, bool]:
    """Share of sign patterns whose |mean| is at least the observed one, and if all were tried."""
    n = len(differences)
    exact = n <= EXACT_UP_TO
    if exact:
        patterns = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        patterns = np.random.default_rng(0).integers(0, 2, size=(DRAWS, n))
    means = np.abs((1.0 - 2.0 * patterns) @ differences)
    # Sums in another order differ in the last bits: equal up to rounding counts as equal.
    reached = means >= abs(differences.sum()) - 1e-9 * (1.0 + np.abs(differences).sum())
    if exact:
        return float(reached.mean()), True
    return float((reached.sum() + 1) / (DRAWS + 1)), False


def compare(
    first: str, second: str, scores: Mapping[int, float], others: Mapping[int, float]
) -> Comparison | None:
    """Paired comparison of two conditions' scores by seed; None where they share no seed.

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
    half = t_quantile(n - 1) * float(differences.std(ddof=1)) / math.sqrt(n)
    p, exact = sign_flip_p(differences)
    return Comparison(first, second, seeds, mean, mean - half, mean + half, p, exact)
