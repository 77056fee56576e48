"""The next byte: a causal language model, measured in bits per byte."""

import bz2
import gzip
import hashlib
import lzma
import math
import os
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped, UInt8

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.lab.config import TextConfig
from graph_machine.lab.tasks.answers import Answer, Answers, Solution, Sure, TextAnswer
from graph_machine.lab.tasks.base import Split, Task
from graph_machine.lab.tasks.batch import Batch, Batches
from graph_machine.lab.tasks.generated import causal_spec
from graph_machine.lab.tasks.rows import stream_key
from graph_machine.lab.tasks.scores import Metric, Scores

# Left out of the standard library: tests repeat themselves, and site-packages are not part of it.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "__pycache__"}


def read_corpus(data: str | None, most: int) -> UInt8[np.ndarray, "n"]:
    """The first `most` bytes of a file, or of the library's files in an order by hash."""
    if data is not None:
        path = Path(data)
        try:
            with path.open("rb") as file:
                return np.frombuffer(file.read(most), dtype=np.uint8)
        except OSError as error:
            raise DataError(f"Cannot read the text ({error.strerror}): {path}") from None
    root = Path(sysconfig.get_path("stdlib"))
    files: list[Path] = []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT]
        files += [Path(folder, name) for name in names if name.endswith(".py")]

    def place(path: Path) -> str:
        return hashlib.sha256(path.relative_to(root).as_posix().encode()).hexdigest()

    parts, size = [], 0
    for path in sorted(files, key=place):
        parts.append(path.read_bytes())
        size += len(parts[-1])
        if size >= most:
            break
    if not parts:
        raise DataError(f"There are no sources of the standard library here; give --data: {root}")
    return np.frombuffer(b"".join(parts)[:most], dtype=np.uint8)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip -9": lambda text: gzip.compress(text, 9),
    "bzip2 -9": lambda text: bz2.compress(text, 9),
    "xz -9e": lambda text: lzma.compress(text, preset=9 | lzma.PRESET_EXTREME),
}


def compressed_bits(text: bytes) -> dict[str, float]:
    """Bits per byte by compressor."""
    return {name: 8 * len(pack(text)) / len(text) for name, pack in COMPRESSORS.items()}


BYTES, START = 256, 256  # the token before the first byte of a window
SHARES = {"train": 0.9, "eval": 0.05, "test": 0.05}  # in this order along the text
# Bytes that cannot be seen; the token before a window is drawn as its left edge.
SIGNS = {START: "⊢", ord(" "): "␣", ord("\n"): "⏎", ord("\t"): "⇥"}


def byte_word(byte: int) -> str:
    """A byte as one character that can be seen, or as two hexadecimal digits."""
    return SIGNS.get(byte) or (chr(byte) if 32 < byte < 127 else f"{byte:02X}")


class TextTask(Task):
    """Windows of `length` bytes. Training windows begin anywhere, others follow each other."""

    name = "text"
    examples_word = "windows"
    contents_word = "the text"
    config: TextConfig
    parts: dict[str, UInt8[np.ndarray, "n"]]

    def make_spec(self) -> InputSpec:
        return causal_spec(self.config.length, num_tokens=BYTES + 1, num_outputs=BYTES)

    @property
    def label(self) -> str:
        return f"{self.config.length}-bytes"

    def open(self, data: str | None = None, seed: int = 0) -> "TextTask":
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
        rng = np.random.default_rng(stream_key("text", seed, step))
        part, length = self.parts["train"], self.config.length
        starts = rng.integers(len(part) - length + 1, size=batch_size)
        return self.windows(part[starts[:, None] + np.arange(length)])

    def split_batches(self, split: Split, batch_size: int, limit: int | None = None) -> Batches:
        rows = self.rows_of(split, limit)
        for first in range(0, len(rows), batch_size):
            yield self.windows(rows[first : first + batch_size])

    def rows_of(self, split: Split, limit: int | None) -> UInt8[np.ndarray, "b n"]:
        """The first windows of a split, or all of them, without the rest at its end."""
        count = self.sizes[split] if limit is None else min(limit, self.sizes[split])
        length = self.config.length
        return self.parts[split][: count * length].reshape(count, length)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        # Every window has as many bytes, so the mean of their mean losses is that of all bytes.
        bits = Metric("bits_per_byte", "bits per byte", "loss", None, False, False, 1 / math.log(2))
        return (bits, Metric("byte_accuracy", "bytes", "nodes_right", "nodes"))

    def reference_scores(self, split: Split, limit: int | None = None) -> dict[str, Scores]:
        """Counts of pairs of bytes, and general compressors, which see the windows in one piece."""
        rows = self.rows_of(split, limit)
        found = {"pairs of bytes, counted": self.counted_pairs(rows)}
        for name, bits in compressed_bits(rows.tobytes()).items():
            losses = np.full(len(rows), bits * math.log(2))
            found[name] = Scores({"loss": losses}, {}, self.metrics)
        return found

    def counted_pairs(self, rows: UInt8[np.ndarray, "b n"]) -> Scores:
        """The byte that most often follows the one before, and what all pairs' counts cost."""
        train = self.parts["train"].astype(np.int64)
        counts = np.bincount(train[:-1] * BYTES + train[1:], minlength=BYTES * BYTES)
        counts = counts.reshape(BYTES, BYTES)
        # Before the first byte of a window nothing is known but how frequent bytes are.
        table = np.concatenate([counts, np.bincount(train, minlength=BYTES)[None]])
        shares = (table + 1) / (table + 1).sum(axis=1, keepdims=True)
        batch = self.windows(rows)
        before, after = batch.known_tokens.numpy(), batch.answers.numpy()
        right = table.argmax(axis=1)[before] == after
        columns = {
            "loss": -np.log(shares[before, after]).mean(axis=1),
            "nodes_right": right.sum(axis=1).astype(np.float64),
            "nodes": np.full(len(rows), float(rows.shape[1])),
        }
        return Scores(columns, {}, self.metrics)

    def parse(self, text: str) -> Batch:
        """The last bytes of the text, as many as fit into a window."""
        # Bytes of the command line that are no text arrive as surrogates: back to bytes.
        whole = text.encode(errors="surrogateescape")
        found = np.frombuffer(whole[-self.config.length :], dtype=np.uint8)
        if len(found) == 0:
            raise DataError("Expected some text.")
        return self.windows(found[None])

    def token_words(self, example: Batch) -> list[str]:
        return [byte_word(token) for token in example.known_tokens[0].tolist()]

    def answer_words(self, answers: Sequence[int] | Shaped[np.ndarray, "q"]) -> list[str]:
        return [byte_word(int(answer)) for answer in answers]

    def questions(self, example: Batch) -> list[str]:
        """The byte before the queried one."""
        return self.token_words(example)

    def solve(self, example: Batch) -> Solution:
        """A text brings its own next bytes."""
        return Solution(example.answers[0].numpy())

    def text(self, example: Batch) -> str:
        # A window may begin or end inside a character: what is left of it cannot be typed.
        return bytes(example.answers[0].tolist()).decode(errors="ignore")

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        """What the model expected at every byte."""
        return TextAnswer(bytes(int(byte) for byte in answers).decode(errors="replace"))
