"""Bands of the rating, and how the full data set divides into them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Real

from graph_machine.tasks.scores import Band

# Bands of the rating: name -> its largest rating. Ratings have one decimal.
BANDS: dict[str, float] = {"0.0": 0.05, "1.0-2.0": 2.05, "2.1-4.0": 4.05, "4.1-8.5": float("inf")}
UNRATED = "unrated"
# Share of each band in the full data set of three million puzzles.
DATASET_SHARES = dict(zip(BANDS, (0.431, 0.295, 0.252, 0.022), strict=True))
RATING_BANDS = tuple(
    Band(label, low, high)
    for label, low, high in zip(BANDS, [0.0, *BANDS.values()], BANDS.values(), strict=False)
)


# Where a file's ratings count backtracks (sudoku-extreme), which is another quantity.
BACKTRACK_BANDS = (
    Band("0", 0.0, 0.5),
    Band("1-10", 0.5, 10.5),
    Band("11-100", 10.5, 100.5),
    Band("over 100", 100.5, float("inf")),
)


def band_of(
    ratings: Real[np.ndarray, "b"], bands: Sequence[Band] = RATING_BANDS
) -> Int64[np.ndarray, "b"]:
    """The number of each rating's band; that after the last where the rating is unknown."""
    found = np.searchsorted([band.high for band in bands], ratings)
    return np.where(np.isnan(ratings), len(bands), found)


def band_counts(
    ratings: Real[np.ndarray, "b"], bands: Sequence[Band] = RATING_BANDS
) -> dict[str, int]:
    """How many ratings there are in each band; unrated rows are named only if there are some."""
    counts = np.bincount(band_of(ratings, bands), minlength=len(bands) + 1).tolist()
    named = dict(zip([*(band.label for band in bands), UNRATED], counts, strict=True))
    if not named[UNRATED]:
        del named[UNRATED]
    return named
