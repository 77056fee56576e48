"""Tasks whose examples are made on demand, each a function of one key."""

import hashlib
import json
from abc import abstractmethod
from typing import ClassVar

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.lab.tasks.base import Split, Task
from graph_machine.lab.tasks.batch import Batch, Batches
from graph_machine.lab.tasks.rows import stream_key

MOST_EDGES = 16  # input edges are distinguished by their distance, and empty ones


def causal_spec(length: int, *, num_tokens: int, num_outputs: int) -> InputSpec:
    """A sequence of at most `length` positions, with edges to the nearest earlier ones.

    >>> causal_spec(48, num_tokens=10, num_outputs=5).causal
    True
    """
    return InputSpec(
        num_tokens=num_tokens,
        num_outputs=num_outputs,
        num_nodes=length,
        grid=(1, length),
        graph="sequence",
        num_edge_categories=MOST_EDGES + 1,
        causal=True,
    )


MOST_NODES = 1024  # memory grows with the square of them, here and in most models


def check_size(n: int) -> None:
    """One line where a graph has more nodes than text may have.

    >>> check_size(1024)
    """
    if n > MOST_NODES:
        raise DataError(
            f"Expected at most {MOST_NODES:,} nodes (0 to {MOST_NODES - 1}), got {n:,}."
        )


CHUNK = 256  # examples of eval and test splits that are made at a time


class GeneratedTask(Task):
    """A task that makes its examples on demand: implement `make_spec` and `make`.

    Training batches depend on the run's seed and the step. The eval and test splits are the same
    for every run with the same `data_seed` (a field that the config may have). The tutorial's last
    page builds one from scratch.

    >>> from graph_machine.lab.config import PointersConfig
    >>> from graph_machine.lab.tasks.base import make_task
    >>> task = make_task(PointersConfig(nodes=8, test_hops=6))
    >>> sum(len(batch) for batch in task.split_batches("test", 64, limit=100))
    100
    """

    sizes: dict[str, int] = {"train": 1_000_000, "eval": 1024, "test": 1024}  # noqa: RUF012
    version: ClassVar[int] = 1  # raise it where `make` gives other examples than before
    # Settings that change how the same examples are shown to a model, or training examples only:
    # no other data to test on.
    shown_by: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        """`count` examples, the same for the same arguments; `key` seeds the random numbers.

        `progress` is the share of the training that is done, 1 outside of training.
        """

    @property
    def data_seed(self) -> int:
        """Seeds the eval and test splits."""
        return int(getattr(self.config, "data_seed", 0))

    def open(self, data: str | None = None, seed: int = 0) -> "GeneratedTask":
        """Name the data by config and version; there is no file to open."""
        if data is not None:
            raise DataError(
                f"The task {self.config.name} makes its examples itself; leave --data out."
            )
        drawn = {k: v for k, v in self.config.to_dict().items() if k not in self.shown_by}
        what = f"{self.version} {json.dumps(drawn, indent=2)}"
        self.identity = hashlib.sha256(what.encode()).hexdigest()[:16]
        self.source = "generated"
        return self

    def sample(self, count: int, seed: int) -> Batch | None:
        return self.make(stream_key("sample", self.data_seed, seed), count, "test", 1.0)

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        """The training batch of a step, a function of `seed` and `step`."""
        key = stream_key("train", self.data_seed, seed, step)
        return self.make(key, batch_size, "train", progress)

    def split_batches(self, split: Split, batch_size: int, limit: int | None = None) -> Batches:
        """The examples of a split (or the first `limit`), in a fixed order."""
        size = self.sizes[split] if limit is None else min(limit, self.sizes[split])
        for start in range(0, size, CHUNK):
            # A chunk is made whole, so that its first examples do not depend on the limit.
            whole = self.make(stream_key(split, self.data_seed, start), CHUNK, split, 1.0)
            end = min(CHUNK, size - start)
            for first in range(0, end, batch_size):
                yield whole[first : min(first + batch_size, end)]
