"""Multi-query associative recall: k1 v1 k2 v2 ..., then keys, each answered by its value.

Causal. A sequence is `length` tokens: the pairs, then queries for as long as there is room, every
pair at least once where there is room for all. Keys are tokens 0 to K - 1, values follow. The test
also has more pairs than training; its sequences are no longer, as positions are learned.
"""

import re
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.lab.config import RecallConfig
from graph_machine.lab.tasks.answers import Answer, Answers, ExactAnswer, Solution, Sure
from graph_machine.lab.tasks.base import Baseline, Split
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask, causal_spec
from graph_machine.lab.tasks.scores import Grouping, Metric


class RecallTask(GeneratedTask):
    """Accuracy counts only queries, and is also reported by the number of pairs."""

    name = "recall"
    examples_word = "sequences"
    contents_word = "keys and values"
    text_hint = "pairs, then the keys asked for: 3=7 0=2 | 0 3"
    groupings = (Grouping("pairs", "pairs"),)
    config: RecallConfig

    def make_spec(self) -> InputSpec:
        keys, values = self.config.keys, self.config.values
        return causal_spec(self.config.length, num_tokens=keys + values, num_outputs=values)

    @property
    def label(self) -> str:
        return f"{self.config.length}-{self.config.pairs}"

    def pairs_of(self, split: Split) -> Int[np.ndarray, "steps"]:
        """Four numbers of pairs up to the most; in the test also more, in steps of a quarter."""
        most = self.config.pairs
        steps = np.linspace(most // 4, most, 4).round().astype(int)
        beyond = np.arange(most + most // 4, self.config.test_pairs + 1, most // 4)
        return np.concatenate([steps, beyond]) if split == "test" else steps

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        rng, config = np.random.default_rng(key), self.config
        steps = self.pairs_of(split)
        pairs = steps[np.arange(count) % len(steps)]
        tokens = np.zeros((count, config.length), dtype=np.int64)
        answers = np.zeros_like(tokens)
        for row in range(count):
            size = int(pairs[row])
            keys = rng.permutation(config.keys)[:size]
            values = rng.integers(config.values, size=size)
            room = config.length - 2 * size
            repeats = -(-room // size)
            asked = np.concatenate([rng.permutation(size) for _ in range(repeats)])[:room]
            tokens[row, : 2 * size : 2] = keys
            tokens[row, 1 : 2 * size : 2] = config.keys + values
            tokens[row, 2 * size :] = keys[asked]
            answers[row, 2 * size :] = values[asked]
        where = np.arange(config.length) >= 2 * pairs[:, None]
        return Batch(
            tokens=torch.from_numpy(tokens),
            answers=torch.from_numpy(answers),
            where=torch.from_numpy(where),
            groups={"pairs": pairs.astype(np.float64)},
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("example_accuracy", "examples", "example_right"),
            Metric("node_accuracy", "queries", "nodes_right", "nodes"),
        )

    def baselines(self) -> dict[str, Baseline]:
        return {"look it up": self.look_up}

    def look_up(self, batch: Batch) -> Int[Tensor, "b n"]:
        """The token after the first occurrence of the same key."""
        tokens = batch.known_tokens
        first = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).int().argmax(dim=-1)  # b n
        after = (first + 1).clamp_max(tokens.shape[1] - 1)
        return (tokens.gather(1, after) - self.config.keys).clamp_min(0)

    def parse(self, text: str) -> Batch:
        """`3=7 0=2 | 0 3 3`: pairs of a key and a value, then the queried keys."""
        config = self.config
        left, bar, right = text.partition("|")
        words = [word.split("=") for word in left.split()]
        asked = right.split()
        fits = bar and words and asked and all(len(pair) == 2 for pair in words)
        numbers = [*(word for pair in words for word in pair), *asked]
        if not fits or not all(re.fullmatch("[0-9]{1,9}", word) for word in numbers):
            raise DataError("Expected pairs and queries such as 3=7 0=2 | 0 3.")
        known = {int(k): int(v) for k, v in words}
        if len(known) < len(words):
            raise DataError("Expected every key in one pair only.")
        wrong = [k for k in (*known, *map(int, asked)) if k >= config.keys]
        if wrong or max(known.values()) >= config.values or not set(map(int, asked)) <= {*known}:
            raise DataError(
                f"Expected keys below {config.keys}, values below {config.values}, and queries of "
                f"keys that occur in a pair."
            )
        flat = [t for k, v in known.items() for t in (k, config.keys + v)] + [int(a) for a in asked]
        if len(flat) > config.length:
            raise DataError(f"Expected at most {config.length} tokens, got {len(flat)}.")
        tokens = torch.tensor([flat])
        where = torch.arange(len(flat)).unsqueeze(0) >= 2 * len(known)
        answers = torch.tensor([[0] * 2 * len(known) + [known[int(a)] for a in asked]])
        return Batch(tokens, answers, where)

    def text(self, example: Batch) -> str:
        asked, tokens = example.where[0], example.known_tokens[0]
        given = tokens[: int(asked.int().argmax())].tolist()  # keys and values in turn
        pairs = [f"{key}={value - self.config.keys}" for key, value in zip(given[::2], given[1::2])]
        return " ".join([*pairs, "|", *map(str, tokens[asked].tolist())])

    def token_words(self, example: Batch) -> list[str]:
        """Keys as they are, values as `=7`."""
        keys = self.config.keys
        return [str(t) if t < keys else f"={t - keys}" for t in example.known_tokens[0].tolist()]

    def answer_words(self, answers: Sequence[int] | Shaped[np.ndarray, "q"]) -> list[str]:
        return [f"={int(answer)}" for answer in answers]

    def questions(self, example: Batch) -> list[str]:
        """The queried keys."""
        return self.token_words(example)

    def solve(self, example: Batch) -> Solution:
        return Solution(self.look_up(example)[0].numpy())

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        asked = example.where[0].numpy()
        exact = self.look_up(example)[0].numpy()[asked] if check else None
        return ExactAnswer(answers[asked], exact)
