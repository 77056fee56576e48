"""From outputs to losses, and from scores of single examples to metrics, in total and by group."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional


def answer_losses(
    logits: Float[Tensor, "b q o"], answers: Int[Tensor, "b q"], where: Bool[Tensor, "b q"]
) -> Float[Tensor, "b"]:
    """Cross-entropy at the places of `where`. An example in which nothing counts has a loss of 0.

    >>> logits = torch.zeros(1, 3, 4)  # b q o: a guess among 4
    >>> answer_losses(logits, torch.tensor([[0, 1, 2]]), torch.tensor([[True, True, False]]))
    tensor([1.3863])
    """
    targets = torch.where(where, answers, 0)
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), reduction="none"
    ).view_as(targets)
    return torch.where(where, losses, 0).sum(dim=-1) / where.sum(dim=-1).clamp_min(1)


def number_losses(
    outputs: Float[Tensor, "b q o"], answers: Float[Tensor, "b q o"], where: Bool[Tensor, "b q"]
) -> Float[Tensor, "b"]:
    """Squared error at the places of `where`. An example in which nothing counts has a loss of 0.

    >>> outputs, answers = torch.tensor([[[1.0], [5.0]]]), torch.tensor([[[3.0], [0.0]]])  # b q o
    >>> number_losses(outputs, answers, torch.tensor([[True, False]]))
    tensor([4.])
    """
    losses = (outputs.float() - answers.float()).square().mean(dim=-1)
    return torch.where(where, losses, 0).sum(dim=-1) / where.sum(dim=-1).clamp_min(1)


Z = 1.96


class Metric(NamedTuple):
    """A mean over examples of one column of scores, or a ratio of two summed columns.

    >>> cells = Metric("cell_accuracy", "cells", of="right", per="blanks")
    >>> cells.show(cells.value({"right": 9.0, "blanks": 12.0}))
    '75.0%'
    """

    name: str  # its key in result.json: `board_accuracy`
    title: str  # for people: `boards`
    of: str  # column of scores
    per: str | None = None  # None: examples
    higher_is_better: bool = True
    is_share: bool = True  # printed in percent
    scale: float = 1.0

    def value(self, sums: dict[str, float]) -> float | None:
        """From sums over examples; `examples` counts them. None without any.

        A method without a model has no loss, and a compressor no answers: columns may be missing.
        """
        right, total = sums.get(self.of), sums.get(self.per or "examples")
        return self.scale * right / total if right is not None and total else None

    def facts(self) -> dict[str, Any]:
        """Facts for reports, kept in result.json with the values."""
        return {
            "title": self.title,
            "share": self.is_share,
            "higher_is_better": self.higher_is_better,
        }

    @classmethod
    def recorded(cls, name: str, facts: dict[str, Any]) -> "Metric":
        """From what result.json keeps of it."""
        better = facts.get("higher_is_better", True)
        return cls(name, facts["title"], name, higher_is_better=better, is_share=facts["share"])

    def show(self, value: float | None) -> str:
        """A value as it is printed for one run."""
        if value is None:
            return "-"
        return f"{value:.1%}" if self.is_share else f"{value:.4g}"

    # In a report, shares are in percent, as in the paper.

    def points(self, value: float) -> float:
        """A recorded value as a report has it."""
        return 100.0 * value if self.is_share else value

    def text(self, points: float) -> str:
        """`80.0%`, `3.376`."""
        return f"{points:.{self.digits}f}{'%' if self.is_share else ''}"

    @property
    def digits(self) -> int:
        """Decimal places."""
        return 1 if self.is_share else 3

    @property
    def heading(self) -> str:
        """Of its column: `boards %`, `bits per byte`."""
        return f"{self.title} %" if self.is_share else self.title

    @property
    def words(self) -> str:
        """Its name as words: `board accuracy`."""
        return self.name.replace("_", " ")

    @property
    def difference(self) -> str:
        """The unit of a difference: `points of board accuracy`."""
        of = f"points of {self.words}" if self.is_share else self.title
        return of if self.higher_is_better else f"{of} (lower is better)"

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None of none."""
        return (max if self.higher_is_better else min)(values, default=None)


class Band(NamedTuple):
    """Examples whose value of a group lies from `low` up to (not including) `high`.

    >>> Band("easy", 0, 2).label
    'easy'
    """

    label: str
    low: float
    high: float


class Grouping(NamedTuple):
    """Metrics are also reported for each value of a group of `Batch.groups`, or for bands of it.

    With `weights` (by band) the metrics of another mix of bands are estimated, named `mix`.

    >>> Grouping("rating", "by rating", (Band("easy", 0, 2), Band("hard", 2, 99))).bands[1].low
    2
    """

    group: str
    title: str
    bands: tuple[Band, ...] = ()
    weights: dict[str, float] | None = None
    mix: str = ""

    def rows(self, values: Shaped[np.ndarray, "b"]) -> dict[str, Bool[np.ndarray, "b"]]:
        """Which values are in each band or, without bands, equal each value; NaN is in none."""
        if self.bands:
            return {b.label: (values >= b.low) & (values < b.high) for b in self.bands}
        known = np.unique(values[~np.isnan(values)]).tolist()
        return {f"{value:g}": values == value for value in known}


def wilson(right: float | int, total: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson): sensible also at 0 and 1 and for few examples.

    >>> low, high = wilson(48, 50)
    >>> f"{low:.1%} to {high:.1%}"
    '86.5% to 98.9%'
    """
    if total == 0:
        return 0.0, 1.0
    share, spread = right / total, Z * Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Scores:
    """Per example: the columns that metrics are made of, and the groups of the task.

    >>> boards = Metric("board_accuracy", "boards", of="right")
    >>> right, rating = np.array([1.0, 0.0, 1.0, 1.0]), np.array([1.0, 5.0, 1.0, 5.0])
    >>> scores = Scores({"right": right}, {"rating": rating}, (boards,))
    >>> scores.summary()
    {'examples': 4, 'board_accuracy': 0.75}
    >>> scores.by(Grouping("rating", "by rating"))["5"]
    {'examples': 2, 'board_accuracy': 0.5}
    """

    values: dict[str, Shaped[np.ndarray, "b"]]
    groups: dict[str, Shaped[np.ndarray, "b"]]
    metrics: tuple[Metric, ...]
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def summary(self, rows: Bool[np.ndarray, "b"] | None = None) -> dict[str, Any]:
        """Metrics over all examples, or over some rows; None without examples."""
        chosen = {n: v if rows is None else v[rows] for n, v in self.values.items()}
        count = len(next(iter(chosen.values())))
        sums = {n: v.sum() for n, v in chosen.items()} | {"examples": count}
        found: dict[str, Any] = {"examples": count}
        for metric in self.metrics:
            value = metric.value(sums)
            found[metric.name] = None if value is None else float(value)
        if "loss" in chosen:
            found["loss"] = float(chosen["loss"].mean()) if count else None
        return found

    def by(self, grouping: Grouping) -> dict[str, dict[str, Any]]:
        """A summary for each band, or each value, that has examples."""
        if grouping.group not in self.groups:
            return {}
        found = grouping.rows(self.groups[grouping.group])
        return {label: self.summary(rows) for label, rows in found.items() if rows.any()}
