"""Which rows of a data set are in which split, and in which batch."""

import numpy as np
from jaxtyping import Int64, UInt64

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import permutation, stream_key
from graph_machine.tasks.sudoku.splits import FRACTIONS, Splits


def split_by_key(keys: UInt64[np.ndarray, "rows"], seed: int) -> Splits:
    """Train, eval and test rows (0.9 / 0.05 / 0.05), so that no two splits share a key.

    Whole groups of rows go to test and eval until each has its share; the rest is for training.
    The rows of each split are in random order.
    """
    unique, group = np.unique(keys, return_inverse=True)
    if len(unique) < 3:
        raise DataError(f"Cannot split data with {len(unique)} different layouts: need 3.")
    order = permutation(stream_key("split", seed), len(unique))
    sizes = np.bincount(group)[order].cumsum()
    # The number of groups that holds each share; at least one, and one is left for training.
    test = 1 + int(np.searchsorted(sizes, FRACTIONS[2] * len(keys)))
    test = min(test, len(unique) - 2)
    eval_ = 1 + int(np.searchsorted(sizes, sizes[test - 1] + FRACTIONS[1] * len(keys)))
    eval_ = min(max(eval_, test + 1), len(unique) - 1)
    rank = np.empty(len(unique), dtype=np.int64)
    rank[order] = np.arange(len(unique))
    place = rank[group]
    mixed = permutation(stream_key("rows", seed), len(keys))
    place = place[mixed]
    return Splits(
        mixed[place >= eval_], mixed[(place >= test) & (place < eval_)], mixed[place < test]
    )


class RowOrder:
    """Training rows by step: reshuffled for each epoch, the epochs joined end to end."""

    def __init__(self, rows: Int64[np.ndarray, "r"], seed: int) -> None:
        if not len(rows):
            raise DataError("There are no rows to train on.")
        self.rows, self.seed = rows, seed
        self._epoch, self._order = -1, rows

    def __call__(self, step: int, batch_size: int) -> Int64[np.ndarray, "b"]:
        """The rows of the batch of a step: the same for the same arguments, always."""
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        parts = []
        for epoch in np.unique(places // len(self.rows)).tolist():
            inside = places[places // len(self.rows) == epoch] % len(self.rows)
            parts.append(self._shuffled(epoch)[inside])
        return np.concatenate(parts)

    def _shuffled(self, epoch: int) -> Int64[np.ndarray, "r"]:
        if epoch != self._epoch:
            key = stream_key("epoch", self.seed, epoch)
            self._order, self._epoch = self.rows[permutation(key, len(self.rows))], epoch
        return self._order
