"""Rounds at test time: a fixed number, or until an answer no longer changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine


@dataclass(frozen=True)
class Rounds:
    """At most `most` rounds (None: as in the model's config).

    With `until_stable`, an example's answer is taken when it has not changed for that many rounds.
    """

    most: int | None = None
    until_stable: int | None = None

    def __post_init__(self) -> None:
        if self.until_stable is not None and self.until_stable < 1:
            raise ConfigError(f"until_stable should be at least 1, got {self.until_stable}.")

    def check(self, model: "GraphMachine") -> int:
        """The most rounds for this model; one clear line where it cannot have rounds."""
        if self.until_stable is not None and model.core is None:
            raise ConfigError("until_stable: this model has no recurrent core to repeat.")
        return model.check_rounds(self.most)


AS_TRAINED = Rounds()


@torch.no_grad()
def answer(
    model: "GraphMachine", rounds: Rounds, inputs: dict[str, Any]
) -> tuple[Float[Tensor, "b q o"], Int[Tensor, "b"]]:
    """Outputs of a batch and the number of rounds behind each example's."""
    most = rounds.check(model)
    if rounds.until_stable is None:
        again = {} if model.core is None else {"rounds": most}
        outputs = model(**inputs, **again).logits
        return outputs, torch.full((len(outputs),), most, device=outputs.device)
    each = islice(model.iterate(**inputs), most)
    outputs = next(each)
    before = outputs.argmax(dim=-1)
    stays = torch.zeros(len(outputs), dtype=torch.long, device=outputs.device)
    used = torch.full_like(stays, most)
    done = torch.zeros_like(stays, dtype=torch.bool)
    for number, new in enumerate(each, start=2):
        outputs = torch.where(done[:, None, None], outputs, new)
        now = new.argmax(dim=-1)
        stays = torch.where((now == before).flatten(1).all(dim=1), stays + 1, 0)
        before = now
        settled = ~done & (stays >= rounds.until_stable)
        used[settled] = number
        done |= settled
        if bool(done.all()):
            break
    return outputs, used


@torch.no_grad()
def after_rounds(
    model: "GraphMachine", numbers: Sequence[int], inputs: dict[str, Any]
) -> Iterator[Float[Tensor, "b q o"]]:
    """Outputs after each of some numbers of rounds, ascending, in one pass."""
    for number in numbers:
        model.check_rounds(number)
    wanted = set(numbers)
    for number, outputs in enumerate(islice(model.iterate(**inputs), max(numbers)), start=1):
        if number in wanted:
            yield outputs
