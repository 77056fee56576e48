"""Board and cell accuracy over blanks, in total, by rating band and by clue count.

`score` takes numpy arrays or torch tensors on any device; a `Tally` adds scores up over batches.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, Real, Shaped
from torch import Tensor

# Bands of the rating: name -> its largest rating. Ratings have one decimal.
BANDS: dict[str, float] = {"0.0": 0.05, "1.0-2.0": 2.05, "2.1-4.0": 4.05, "4.1-8.5": float("inf")}
UNRATED = "unrated"
# Share of each band in the full data set of three million puzzles.
DATASET_SHARES = dict(zip(BANDS, (0.431, 0.295, 0.252, 0.022), strict=True))


class Score(NamedTuple):
    """Per board: blanks filled in rightly, and blanks."""

    right: Any
    blanks: Any


def score(
    predictions: Shaped[np.ndarray | Tensor, "b n"],
    puzzles: Shaped[np.ndarray | Tensor, "b n"],
    solutions: Shaped[np.ndarray | Tensor, "b n"],
) -> Score:
    """Compare predicted digits (1..side, as in the solutions) with the solution at the blanks."""
    blank = puzzles == 0
    return Score(((predictions == solutions) & blank).sum(-1), blank.sum(-1))


def band_of(ratings: Real[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """The number of each rating's band in BANDS; `len(BANDS)` where the rating is unknown."""
    bands = np.searchsorted(list(BANDS.values()), ratings)
    return np.where(np.isnan(ratings), len(BANDS), bands)


@dataclass
class Accuracy:
    """Counts of boards and blank cells, and of those that are right."""

    boards: int = 0
    boards_right: int = 0
    cells: int = 0
    cells_right: int = 0

    @property
    def board(self) -> float:
        """Share of boards with every blank right; NaN without boards."""
        return self.boards_right / self.boards if self.boards else float("nan")

    @property
    def cell(self) -> float:
        """Share of blanks that are right; NaN without blanks."""
        return self.cells_right / self.cells if self.cells else float("nan")

    def add(self, right: Int64[np.ndarray, "b"], blanks: Int64[np.ndarray, "b"]) -> None:
        self.boards += len(right)
        self.boards_right += int((right == blanks).sum())
        self.cells += int(blanks.sum())
        self.cells_right += int(right.sum())

    def as_dict(self) -> dict[str, float | int]:
        return {
            "board_accuracy": self.board,
            "cell_accuracy": self.cell,
            "boards": self.boards,
            "cells": self.cells,
        }


@dataclass
class Tally:
    """Accuracies added up over batches."""

    total: Accuracy = field(default_factory=Accuracy)
    by_band: dict[str, Accuracy] = field(default_factory=dict)
    by_clues: dict[int, Accuracy] = field(default_factory=dict)

    def add(
        self,
        scores: Score,
        ratings: Real[np.ndarray | Tensor, "b"],
        clues: Shaped[np.ndarray | Tensor, "b"],
    ) -> None:
        right, blanks = (_numpy(values).astype(np.int64) for values in scores)
        self.total.add(right, blanks)
        names = [*BANDS, UNRATED]
        bands = band_of(_numpy(ratings))
        for band in np.unique(bands):
            rows = bands == band
            accuracy = self.by_band.setdefault(names[band], Accuracy())
            accuracy.add(right[rows], blanks[rows])
        counts = _numpy(clues)
        for count in np.unique(counts):
            rows = counts == count
            accuracy = self.by_clues.setdefault(int(count), Accuracy())
            accuracy.add(right[rows], blanks[rows])

    @property
    def dataset_board(self) -> float:
        """Board accuracy with the bands weighted as in the full data set; NaN if one is missing.

        Samples that favour hard puzzles become comparable with the full file this way.
        """
        return sum(
            share * self.by_band.get(band, Accuracy()).board
            for band, share in DATASET_SHARES.items()
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, bands and clue counts in order."""
        bands = [band for band in [*BANDS, UNRATED] if band in self.by_band]
        return self.total.as_dict() | {
            "by_band": {band: self.by_band[band].as_dict() for band in bands},
            "by_clues": {str(n): self.by_clues[n].as_dict() for n in sorted(self.by_clues)},
        }


def _numpy(values: Shaped[np.ndarray | Tensor, "b"]) -> Shaped[np.ndarray, "b"]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def band_counts(ratings: Real[np.ndarray, "b"]) -> dict[str, int]:
    """How many ratings there are in each band; unrated rows are named only if there are some."""
    counts = np.bincount(band_of(ratings), minlength=len(BANDS) + 1).tolist()
    named = dict(zip([*BANDS, UNRATED], counts, strict=True))
    if not named[UNRATED]:
        del named[UNRATED]
    return named
