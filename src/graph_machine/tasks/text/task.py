"""The next byte: a causal language model, measured in bits per byte."""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from graph_machine.config import InputSpec, TextConfig
from graph_machine.errors import DataError
from graph_machine.tasks.base import Answer, Baseline, Split, Task, TextAnswer
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.hashing import stream_key
from graph_machine.tasks.scores import Metric
from graph_machine.tasks.text.corpus import read_corpus

MOST_EDGES = 16  # input edges are told apart by their distance, and empty ones
BYTES, START = 256, 256  # the token before the first byte of a window
SHARES = {"train": 0.9, "eval": 0.05, "test": 0.05}  # in this order along the text


class TextTask(Task):
    """Windows of `length` bytes. Training windows begin anywhere, others follow each other."""

    name = "text"
    examples_word = "windows"
    config: TextConfig
    parts: dict[str, UInt8[np.ndarray, "n"]]

    def make_spec(self) -> InputSpec:
        return InputSpec(
            num_tokens=BYTES + 1,
            num_outputs=BYTES,
            num_nodes=self.config.length,
            grid=(1, self.config.length),
            graph="sequence",
            num_edge_categories=MOST_EDGES + 1,
            causal=True,
        )

    @property
    def label(self) -> str:
        return f"{self.config.length}-bytes"

    def open(self, data: str | None = None, seed: int = 0) -> "TextTask":
        del seed
        text = read_corpus(data, self.config.most)
        length = self.config.length
        if len(text) < 60 * length:
            raise DataError(
                f"The text should have at least 60 windows of {length} bytes, got {len(text):,} "
                f"bytes; lower task.length or take a longer one."
            )
        self.identity = hashlib.sha256(text.tobytes()).hexdigest()[:16]
        self.source = "generated" if data is None else str(Path(data).absolute())
        ends = (np.cumsum(list(SHARES.values())) * len(text)).round().astype(int)
        self.parts = dict(zip(SHARES, np.split(text, ends[:-1])))
        self.sizes = {name: len(part) // length for name, part in self.parts.items()}
        return self

    def windows(self, rows: Shaped[np.ndarray, "b n"]) -> Batch:
        answers = torch.from_numpy(rows.astype(np.int64))
        tokens = torch.cat([torch.full_like(answers[:, :1], START), answers[:, :-1]], dim=1)
        return Batch(tokens, answers, torch.ones_like(answers, dtype=torch.bool))

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        del progress
        rng = np.random.default_rng(stream_key("text", seed, step))
        part, length = self.parts["train"], self.config.length
        starts = rng.integers(len(part) - length + 1, size=batch_size)
        return self.windows(part[starts[:, None] + np.arange(length)])

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        count = self.sizes[split] if limit is None else min(limit, self.sizes[split])
        length = self.config.length
        whole = self.parts[split][: count * length].reshape(count, length)
        for first in range(0, count, batch_size):
            yield self.windows(whole[first : first + batch_size])

    @property
    def metrics(self) -> tuple[Metric, ...]:
        # Every window has as many bytes, so the mean of their mean losses is that of all bytes.
        bits = Metric("bits_per_byte", "bits per byte", "loss", None, False, False, 1 / math.log(2))
        return (bits, Metric("byte_accuracy", "bytes", "nodes_right", "nodes"))

    def baselines(self) -> dict[str, Baseline]:
        return {"the byte that follows most often": self.most_common}

    def most_common(self, batch: Batch) -> Int[Tensor, "b n"]:
        """After each byte, the one that followed it most often in the training text."""
        assert batch.tokens is not None
        train = self.parts["train"].astype(np.int64)
        counts = np.bincount(train[:-1] * BYTES + train[1:], minlength=BYTES * BYTES)
        best = counts.reshape(BYTES, BYTES).argmax(axis=1)
        table = np.concatenate([best, [np.bincount(train, minlength=BYTES).argmax()]])
        return torch.from_numpy(table)[batch.tokens]

    def parse(self, text: str) -> Batch:
        """The last bytes of the text, as many as fit into a window."""
        found = np.frombuffer(text.encode()[-self.config.length :], dtype=np.uint8)
        if len(found) == 0:
            raise DataError("Expected some text.")
        return self.windows(found[None])

    def show(
        self,
        example: Batch,
        answers: Shaped[np.ndarray, "q *o"],
        confidences: Float[np.ndarray, "q"],
        *,
        check: bool = False,
    ) -> Answer:
        """What the model expected at every byte."""
        del example, confidences, check
        return TextAnswer(bytes(int(byte) for byte in answers).decode(errors="replace"))
