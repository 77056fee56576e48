"""Rounds at test time: a fixed number, or until an answer no longer changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.config.model import MOST_ROUNDS
from graph_machine.errors import ConfigError

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine


# A file from elsewhere may not keep the machine busy for hours; a caller may ask for more.
MOST_FROM_FILE = 1_000


def check_count(name: str, value: Any, least: int, most: int = MOST_ROUNDS) -> None:
    """One clear line for an invalid number of rounds."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{name} should be a whole number, got {value!r}.")
    if value < least:
        raise ConfigError(f"{name} should be at least {least}, got {value}.")
    if value > most:
        raise ConfigError(f"{name} should be at most {most:,}, got {value:,}.")


@dataclass(frozen=True)
class Rounds:
    """At most `most` rounds (None: as in the model's config).

    With `until_stable`, an example's answer is taken when it has not changed for that many rounds.
    """

    most: int | None = None
    until_stable: int | None = None

    def __post_init__(self) -> None:
        if self.until_stable is not None:
            check_count("until_stable", self.until_stable, 1)

    def check(self, model: "GraphMachine") -> int:
        """The most rounds for this model; one clear line if it has no core."""
        if self.until_stable is not None and model.core is None:
            raise ConfigError("until_stable: this model has no recurrent core to repeat.")
        if self.until_stable is not None and model.spec.output_kind == "numbers":
            raise ConfigError(
                "until_stable needs answers that are classes; this model's are numbers."
            )
        return model.check_rounds(self.most)


AS_TRAINED = Rounds()


@torch.no_grad()
def answer(
    model: "GraphMachine", rounds: Rounds, inputs: dict[str, Any]
) -> tuple[Float[Tensor, "b q o"], Int[Tensor, "b"]]:
    """Outputs of a batch and the number of rounds behind each example's."""
    if rounds.until_stable is not None:
        return _until_stable(model, rounds.check(model), rounds.until_stable, inputs)
    outputs = model(**inputs, rounds=rounds.most).logits
    most = model.config.rounds if rounds.most is None else rounds.most
    return outputs, torch.full((len(outputs),), most, device=outputs.device)


def _until_stable(
    model: "GraphMachine", most: int, patience: int, inputs: dict[str, Any]
) -> tuple[Float[Tensor, "b q o"], Int[Tensor, "b"]]:
    """Rounds continue with the examples whose answers still change."""
    each = model.iterate(**inputs)
    new = next(each)
    outputs, before = new.clone(), new.argmax(dim=-1)
    asked = asked_places(model.spec, inputs, new.shape[1])
    left = torch.arange(len(new), device=new.device)  # numbers of the examples still at work
    used = torch.full_like(left, most)
    stays = torch.zeros_like(left)
    rows = None
    for number in range(2, most + 1):
        new = each.send(rows)
        outputs[left] = new
        now = new.argmax(dim=-1)
        same = now == before if asked is None else (now == before) | ~asked[left]
        stays = torch.where(same.all(dim=1), stays + 1, 0)
        before, rows = now, None
        going = stays < patience
        if not bool(going.all()):
            used[left[~going]] = number
            rows = going.nonzero().flatten()
            left, stays, before = left[rows], stays[rows], before[rows]
        if len(left) == 0:
            break
    return outputs, used


def asked_places(
    spec: InputSpec, inputs: dict[str, Any], places: int
) -> Bool[Tensor, "b q"] | None:
    """Where outputs are part of the answer: not at padding, not where it is given. None: all."""
    mask, tokens, kept = inputs.get("node_mask"), inputs.get("tokens"), spec.given_answers()
    found = None
    if mask is not None and spec.output not in ("graph", "pair"):
        each = (places - spec.graph_choices) // mask.shape[1]  # edge slots: k per node
        found = mask.repeat_interleave(each, dim=1)
        found = torch.nn.functional.pad(found, (0, spec.graph_choices), value=True)
    if kept is not None and tokens is not None:
        question = torch.tensor(kept, device=tokens.device)[tokens] < 0
        found = question if found is None else found & question
    return found


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
