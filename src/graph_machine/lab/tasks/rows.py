"""Random numbers, rows of boards, and which of them are in which split and in which batch."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

from graph_machine.errors import DataError

T = TypeVar("T")
Own = TypeVar("Own", bound="RowArrays")
Cells = UInt8[np.ndarray, "n"]  # a board, row by row
Boards = UInt8[np.ndarray, "b n"]
Keys = UInt64[np.ndarray, "b"]  # random numbers, or hashes
Moves = Int64[np.ndarray, "b n"]  # for each new cell, the old cell that moves there
Names = Int64[np.ndarray, "b names"]  # the new name of a blank (0) and of each digit

GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(values: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """The finaliser of SplitMix64, a bijection of 64-bit integers."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def stream_key(*parts: int | str) -> int:
    """One 64-bit key from a purpose and integers, for example `stream_key("epoch", seed, 3)`."""
    key = 0
    for part in parts:
        word = int.from_bytes(part.encode()[:8], "little") if isinstance(part, str) else part
        key = int(mix(np.array([(key + GAMMA + word) & _MASK], dtype=np.uint64))[0])
    return key


def stream(key: int, count: int, start: int = 0) -> UInt64[np.ndarray, "count"]:
    """Numbers `start .. start + count` of a stream."""
    index = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    return mix(index * np.uint64(GAMMA) + np.uint64(key))


def permutation(key: int, size: int) -> Int64[np.ndarray, "size"]:
    """A random order of 0 .. size - 1: the order of the first `size` numbers of the stream.

    The numbers are distinct (a bijection of distinct inputs), so the order has no ties.
    """
    return np.argsort(stream(key, size))


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

    @classmethod
    def tests(cls, count: int) -> "Splits":
        """All of `count` rows as the test, in order, and nothing to train on."""
        return cls(np.arange(0), np.arange(0), np.arange(count))


def split_rows(count: int, seed: int) -> Splits:
    """The rows of `count`, split at random by `seed`; the same on every machine.

    Evaluation and test get their share rounded (at least one row each), training the rest. The
    rows of each set are in random order, so a prefix of one is a random sample of it.

    >>> rows = split_rows(1000, seed=0)
    >>> len(rows.train), len(rows.eval), len(rows.test)
    (900, 50, 50)
    """
    if count < 3:
        raise DataError(f"Cannot split {count} rows in train, evaluation and test: need 3.")
    held = [max(1, round(count * fraction)) for fraction in FRACTIONS[1:]]
    order = permutation(stream_key("split", seed), count)
    train, evaluation, test = np.split(order, [count - sum(held), count - held[1]])
    return Splits(train, evaluation, test)


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
        self._shuffled = -1, rows  # an epoch and its order

    def __call__(self, step: int, batch_size: int) -> Int64[np.ndarray, "b"]:
        """The rows of the batch of a step: the same for the same arguments, always."""
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        parts = []
        for epoch in np.unique(places // len(self.rows)).tolist():
            inside = places[places // len(self.rows) == epoch] % len(self.rows)
            known, order = self._shuffled
            if epoch != known:
                key = stream_key("epoch", self.seed, epoch)
                order = self.rows[permutation(key, len(self.rows))]
                self._shuffled = epoch, order
            parts.append(order[inside])
        return np.concatenate(parts)


@dataclass(frozen=True)
class RowArrays:
    """Arrays with a row for every board; subclasses declare them as fields, the cells first."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: values for name, values in found.items() if isinstance(values, np.ndarray)}

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def side(self) -> int:
        """Rows (and columns) of a board."""
        return round(next(iter(self.arrays.values())).shape[1] ** 0.5)

    def take(self: Own, rows: np.ndarray | slice) -> Own:
        """Some rows, by number or by mask, copied."""
        return replace(self, **{n: np.asarray(values[rows]) for n, values in self.arrays.items()})


R = TypeVar("R", bound=RowArrays)


def join_rows(parts: Sequence[R]) -> R:
    """Several sets of boards as one."""
    columns = [part.arrays for part in parts]
    return replace(parts[0], **{n: np.concatenate([c[n] for c in columns]) for n in columns[0]})


def in_threads(
    make: Callable[[UInt64[np.ndarray, "b"]], T], key: int, size: int, workers: int
) -> Iterator[T]:
    """`make` of block after block of a stream, in order, by threads that work ahead."""
    workers = max(1, workers)
    pending: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(workers)
    start = 0
    try:
        while True:
            while len(pending) < 2 * workers:
                pending.append(pool.submit(make, stream(key, size, start)))
                start += size
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def distinct(
    blocks: Iterable[R],
    mark: Callable[[R], Iterable[Hashable]],
    count: int,
    failure: Callable[[int, int], str | None],
) -> Iterator[R]:
    """The first `count` rows of the blocks whose marks differ.

    `failure` is called after each block, with the rows found so far and the number of successive
    blocks without any; a text that it returns ends the search.
    """
    if count < 1:
        raise DataError(f"Expected a count of at least 1, got {count}.")
    seen: set[Hashable] = set()
    made = barren = 0
    for block in blocks:
        new = []
        for row, own in enumerate(mark(block)):
            if own not in seen:
                seen.add(own)
                new.append(row)
        found = block.take(np.array(new[: count - made], dtype=np.int64))
        made, barren = made + len(found), 0 if len(found) else barren + 1
        if len(found):
            yield found
        if made == count:
            return
        if (why := failure(made, barren)) is not None:
            raise DataError(f"Only {made:,} of {count:,} {why}")


def symmetries(side: int) -> Int64[np.ndarray, "8 n"]:
    """The rotations and reflections of a square: for each new cell, the old cell that moves there.

    The first one leaves everything where it is.
    """
    cells = np.arange(side * side).reshape(side, side)
    turned = [np.rot90(board, turns) for board in (cells, cells.T) for turns in range(4)]
    return np.stack([board.reshape(-1) for board in turned])


def symmetry_keys(boards: Boards, name: Callable[[np.ndarray], np.ndarray] | None = None) -> Keys:
    """64 bits of each board that stay as it is turned or mirrored; `name` relabels its cells.

    >>> boards = np.array([[1, 2, 3, 4], [3, 1, 4, 2], [1, 3, 2, 4]], dtype=np.uint8)  # 2x2 each
    >>> len(set(symmetry_keys(boards).tolist()))
    1
    """
    weights = stream(stream_key("layout"), boards.shape[1]) | np.uint64(1)
    keys = []
    for cells in symmetries(round(boards.shape[1] ** 0.5)):
        named = boards[:, cells] if name is None else name(boards[:, cells])
        marks = mix(named.astype(np.uint64) + np.uint64(1))
        keys.append(mix((marks * weights).sum(axis=1, dtype=np.uint64)))
    return np.min(keys, axis=0)
