"""Train, evaluation and test rows (0.9 / 0.05 / 0.05, redrawn for each seed)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import permutation, stream_key

FRACTIONS = (0.9, 0.05, 0.05)


@dataclass(frozen=True)
class Splits:
    """Row numbers of a store; the three sets share no row and cover all of them.

    >>> len(split_rows(1000, seed=0).train)
    900
    """

    train: Int64[np.ndarray, "train"]
    eval: Int64[np.ndarray, "eval"]
    test: Int64[np.ndarray, "test"]


def split_rows(count: int, seed: int, fractions: tuple[float, float, float] = FRACTIONS) -> Splits:
    """The rows of `count`, split at random by `seed`; the same on every machine.

    Evaluation and test get their share rounded (at least one row each), training the rest. The
    rows of each set are in random order, so a prefix of one is a random sample of it.

    >>> rows = split_rows(1000, seed=0)
    >>> len(rows.train), len(rows.eval), len(rows.test)
    (900, 50, 50)
    """
    if count < 3:
        raise DataError(f"Cannot split {count} rows in train, evaluation and test: need 3.")
    if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise DataError(f"Split fractions must be at least 0 and sum to 1, got {fractions}.")
    held = [max(1, round(count * fraction)) for fraction in fractions[1:]]
    order = permutation(stream_key("split", seed), count)
    train, evaluation, test = np.split(order, [count - sum(held), count - held[1]])
    return Splits(train, evaluation, test)
