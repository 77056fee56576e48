"""Batches straight off the memory map, made ahead of time by a background thread.

The batch of step t is a function of (store, rows, batch size, seed, t) and of nothing else: the
rows are reshuffled for each epoch, the epochs are joined end to end, and step t takes the places
`t * batch_size` to `(t + 1) * batch_size`. A run that resumes at any step sees the same batches.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64, UInt8

from graph_machine.errors import DataError
from graph_machine.lab.tasks.rows import RowOrder, stream_key
from graph_machine.lab.tasks.sudoku.reader import Rows
from graph_machine.lab.tasks.sudoku.store import SudokuStore

Boards = UInt8[np.ndarray, "b n"]
# (puzzles, solutions, key) -> (puzzles, solutions): see augment.Augment
Transform = Callable[[Boards, Boards, int], tuple[Boards, Boards]]


@dataclass(eq=False)
class BatchStream:
    """Training batches by step number, or as an endless iterator from `start_step` on.

    `batch(step)` makes one batch here and now. `fetch(step)` returns the same batch, but a thread
    makes the following `prefetch` ones meanwhile; iterating does that, too. Asking for a step out
    of order restarts the thread there. The thread ends with `close`, at the end of a `with`
    block, or when the stream is no longer referenced.

    >>> from graph_machine.lab.tasks.sudoku.board import BoxShape
    >>> from graph_machine.lab.tasks.sudoku.generate import generate
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
        self._order = RowOrder(self.rows, self.seed)
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[Rows]] = deque()
        self._next = 0  # the step of the first batch that is made ahead

    def batch_rows(self, step: int) -> Int64[np.ndarray, "b"]:
        """The store's row numbers in the batch of a step."""
        return self._order(step, self.batch_size)

    def batch(self, step: int) -> Rows:
        """The batch of a step, made without the thread."""
        batch = self.store.take(self.batch_rows(step))
        if self.augment is None:
            return batch
        key = stream_key("augment", self.seed, step)
        puzzles, solutions = self.augment(batch.puzzles, batch.solutions, key)
        return replace(batch, puzzles=puzzles, solutions=solutions)

    def fetch(self, step: int) -> Rows:
        """The batch of a step, from the thread that makes them ahead."""
        if step != self._next:
            self.close()
            self._next = step
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        while len(self._ahead) <= self.prefetch:
            ahead = self._next + len(self._ahead)
            self._ahead.append(self._thread.submit(self.batch, ahead))
        self._next += 1
        return self._ahead.popleft().result()

    def __iter__(self) -> Iterator[Rows]:
        return map(self.fetch, itertools.count(self.start_step))

    def close(self) -> None:
        """End the thread; batches that were made ahead are dropped."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
            self._ahead.clear()

    def __enter__(self) -> "BatchStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
