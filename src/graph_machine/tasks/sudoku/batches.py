"""Batches straight off the memory map, made ahead of time by a background thread.

The batch of step t is a function of (store, rows, batch size, seed, t) and of nothing else: the
rows are reshuffled for each epoch, the epochs are joined end to end, and step t takes the places
`t * batch_size` to `(t + 1) * batch_size`. A run that resumes at any step sees the same batches.
"""

import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt8, UInt16

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import permutation, stream_key
from graph_machine.tasks.sudoku.store import SudokuStore


class Batch(NamedTuple):
    """Rows of a store, copied out of it.

    >>> from graph_machine.tasks.sudoku.board import BoxShape
    >>> from graph_machine.tasks.sudoku.generate import generate
    >>> take(generate(BoxShape(2, 2), count=3), np.array([2, 0])).puzzles.shape  # b n
    (2, 16)
    """

    puzzles: UInt8[np.ndarray, "b n"]
    solutions: UInt8[np.ndarray, "b n"]
    ratings: Float32[np.ndarray, "b"]
    clues: UInt16[np.ndarray, "b"]


# (puzzles, solutions, key) -> (puzzles, solutions): see augment.Augment
Transform = Callable[
    [UInt8[np.ndarray, "b n"], UInt8[np.ndarray, "b n"], int],
    tuple[UInt8[np.ndarray, "b n"], UInt8[np.ndarray, "b n"]],
]


def take(store: SudokuStore, rows: Int64[np.ndarray, "b"]) -> Batch:
    """Copy rows out of a store."""
    return Batch(
        np.asarray(store.puzzles[rows]),
        np.asarray(store.solutions[rows]),
        np.asarray(store.ratings[rows]),
        np.asarray(store.clues[rows]),
    )


def sequential_batches(
    store: SudokuStore, rows: Int64[np.ndarray, "r"], batch_size: int
) -> Iterator[Batch]:
    """Each row once, in the order given; the last batch may be shorter. For evaluation."""
    for start in range(0, len(rows), batch_size):
        yield take(store, rows[start : start + batch_size])


@dataclass(eq=False)
class BatchStream:
    """Training batches by step number, or as an endless iterator from `start_step` on.

    `batch(step)` makes one batch here and now. `fetch(step)` returns the same batch, but a thread
    makes the following `prefetch` ones meanwhile; iterating does that, too. Asking for a step out
    of order restarts the thread there. The thread ends with `close`, at the end of a `with`
    block, or when the stream is no longer referenced.

    >>> from graph_machine.tasks.sudoku.board import BoxShape
    >>> from graph_machine.tasks.sudoku.generate import generate
    >>> with BatchStream(generate(BoxShape(2, 2), count=9), np.arange(9), 4, seed=0) as stream:
    ...     stream.fetch(step=0).puzzles.shape  # b n
    (4, 16)
    """

    store: SudokuStore
    rows: Int64[np.ndarray, "r"]
    batch_size: int
    seed: int
    start_step: int = 0
    augment: Transform | None = None
    prefetch: int = 32

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not len(self.rows):
            raise DataError(
                f"A batch stream needs rows and a batch size of at least 1, got {len(self.rows)} "
                f"rows and batch size {self.batch_size}."
            )
        self._epoch = -1
        self._order = self.rows
        self._lock = threading.Lock()
        self._ahead: _Ahead | None = None

    def batch_rows(self, step: int) -> Int64[np.ndarray, "b"]:
        """The store's row numbers in the batch of a step."""
        place, end = step * self.batch_size, (step + 1) * self.batch_size
        parts = []
        while place < end:
            epoch, inside = divmod(place, len(self.rows))
            part = self._epoch_order(epoch)[inside : inside + end - place]
            parts.append(part)
            place += len(part)
        return np.concatenate(parts)

    def batch(self, step: int) -> Batch:
        """The batch of a step, made without the thread."""
        batch = take(self.store, self.batch_rows(step))
        if self.augment is None:
            return batch
        key = stream_key("augment", self.seed, step)
        puzzles, solutions = self.augment(batch.puzzles, batch.solutions, key)
        return batch._replace(puzzles=puzzles, solutions=solutions)

    def _epoch_order(self, epoch: int) -> Int64[np.ndarray, "r"]:
        with self._lock:
            if epoch != self._epoch:
                key = stream_key("epoch", self.seed, epoch)
                self._order = self.rows[permutation(key, len(self.rows))]
                self._epoch = epoch
            return self._order

    def fetch(self, step: int) -> Batch:
        """The batch of a step, from the thread that makes them ahead."""
        if self._ahead is None or self._ahead.step != step:
            self.close()
            self._ahead = _Ahead(self, step, max(1, self.prefetch))
        return self._ahead.take()

    def __iter__(self) -> Iterator[Batch]:
        for step in itertools.count(self.start_step):
            yield self.fetch(step)

    def close(self) -> None:
        """End the thread; batches that were made ahead are dropped."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def __enter__(self) -> "BatchStream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Ahead:
    """The thread that makes batches ahead, and the queue it fills."""

    def __init__(self, stream: BatchStream, step: int, size: int) -> None:
        self.step = step
        self._stop = threading.Event()
        self._queue: queue.Queue[Batch | BaseException] = queue.Queue(size)
        # The thread must not keep a stream alive that nobody else holds.
        arguments = (weakref.ref(stream), step, self._queue, self._stop)
        self._thread = threading.Thread(target=_fill, args=arguments, name="batches", daemon=True)
        self._thread.start()

    def take(self) -> Batch:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        self.step += 1
        return item

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def _fill(
    stream: "weakref.ref[BatchStream]",
    step: int,
    target: "queue.Queue[Batch | BaseException]",
    stop: threading.Event,
) -> None:
    item: Batch | BaseException
    while not stop.is_set() and (held := stream()) is not None:
        try:
            item = held.batch(step)
        except BaseException as error:  # handed to the reader, which raises it
            item = error
        del held
        step += 1
        while not stop.is_set() and stream() is not None:
            try:
                target.put(item, timeout=0.1)
                break
            except queue.Full:
                continue
        if isinstance(item, BaseException):
            return
