"""Bands of the rating, and how the full data set divides into them."""

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


def band_of(ratings: Real[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """The number of each rating's band in BANDS; `len(BANDS)` where the rating is unknown."""
    bands = np.searchsorted(list(BANDS.values()), ratings)
    return np.where(np.isnan(ratings), len(BANDS), bands)


def band_counts(ratings: Real[np.ndarray, "b"]) -> dict[str, int]:
    """How many ratings there are in each band; unrated rows are named only if there are some."""
    counts = np.bincount(band_of(ratings), minlength=len(BANDS) + 1).tolist()
    named = dict(zip([*BANDS, UNRATED], counts, strict=True))
    if not named[UNRATED]:
        del named[UNRATED]
    return named
