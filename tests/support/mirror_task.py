"""A tiny task of one's own: a row of letters is to be written backwards. Used with --import.

Letters that are given as capitals stand in the answer already (they are givens).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from graph_machine.config import InputSpec
from graph_machine.config.base import field
from graph_machine.lab.conditions import base_for, condition
from graph_machine.lab.conditions.budgets import add_family
from graph_machine.lab.config import ExperimentConfig, TaskConfig
from graph_machine.lab.tasks.base import Baseline, Split
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.lab.tasks.scores import Grouping

LETTERS = "abc"


@dataclass(frozen=True)
class MirrorConfig(TaskConfig):
    name: ClassVar[str] = "mirror"

    length: int = field(4, "letters of a row")


class MirrorTask(GeneratedTask):
    name = "mirror"
    examples_word = "rows"
    groupings = (Grouping("a", "number of a's"),)
    sizes = {"train": 1000, "eval": 8, "test": 16}  # noqa: RUF012

    def make_spec(self) -> InputSpec:
        n = self.config.length
        return InputSpec(
            num_tokens=3,
            num_outputs=3,
            num_nodes=n,
            grid=(1, n),
            graph="grid",
            num_edge_categories=6,
            alphabet=LETTERS,
            answers=LETTERS,
            keeps_givens=False,
        )

    @property
    def label(self) -> str:
        return f"mirror-{self.config.length}"

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        random = torch.Generator().manual_seed(key % 2**63)
        tokens = torch.randint(3, (count, self.config.length), generator=random)
        where = torch.ones_like(tokens, dtype=torch.bool)
        return Batch(tokens, tokens.flip(1), where, {"a": (tokens == 0).sum(dim=1).numpy()})

    def baselines(self) -> dict[str, Baseline]:
        return {"as it stands": lambda batch: batch.answers.flip(1)}


@condition("mirror-narrow", "a GM of half the width", beyond_paper=True)
def mirror_narrow(base: ExperimentConfig) -> ExperimentConfig:
    return base.with_model(d_node=8)


def smoke() -> ExperimentConfig:
    return base_for("smoke").replace(task=MirrorConfig()).with_train(batch_size=4)


add_family("mirror", "mirror-narrow", smoke=smoke)
