"""Several tries at test time: an example whose answer breaks the rules is asked in another form.

The rules are the task's own (`Answer.obeys`) and need no solution: a filled Sudoku board shows by
itself whether it is one, a marked maze whether the marks are a path. The other form is a
`Task.disguise`: other names of digits, moved lines.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.models.rounds import Rounds, answer
from graph_machine.tasks.base import Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.hashing import stream_key

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine


class Tried(NamedTuple):
    """Outputs of a batch: of the first try that obeys the rules, else of the first try."""

    outputs: Float[Tensor, "b q o"]
    rounds: Int[Tensor, "b"]  # over all tries of an example
    tries: Int[Tensor, "b"]  # how many there were
    valid: Bool[Tensor, "b"]  # whether one of them obeys the rules


def check_tries(task: Task, tries: int) -> None:
    """One clear line for tries that cannot be."""
    if tries < 1:
        raise ConfigError(f"tries should be at least 1, got {tries}.")
    if tries > 1 and type(task).disguise is Task.disguise:
        raise ConfigError(
            f"tries: the task {task.name} has no other form in which an example could be asked "
            "again (Task.disguise)."
        )


@torch.no_grad()
def answer_in_tries(
    model: "GraphMachine", task: Task, batch: Batch, rounds: Rounds, tries: int
) -> Tried:
    """Answers to a batch in up to `tries` tries, the first of them as the batch is.

    Try t of an example depends on t and its place among those that are left, on nothing random:
    the same call gives the same answers.

    >>> from graph_machine import open_model
    >>> from graph_machine.models.rounds import AS_TRAINED
    >>> subject = open_model("gm-4x4")
    >>> example = subject.known_task.parse("..3...4..4...2..")
    >>> tried = answer_in_tries(subject.model, subject.known_task, example, AS_TRAINED, 4)
    >>> tried.tries.tolist(), tried.valid.tolist()
    ([1], [True])
    """
    check_tries(task, tries)
    outputs, used = answer(model, rounds, batch.inputs())
    found = Tried(
        outputs.clone(), used.clone(), torch.ones_like(used), _obeys(task, batch, outputs)
    )
    for number in range(2, tries + 1):
        left = (~found.valid).nonzero().flatten().tolist()
        if not left:
            break
        rest = batch.rows(left)
        form = task.disguise(rest, stream_key("tries", number))
        assert form is not None  # checked above
        outputs, used = answer(model, rounds, form.batch.to(outputs.device).inputs())
        outputs = form.undo(outputs)
        obeys = _obeys(task, rest, outputs)
        found.rounds[left] += used
        found.tries[left] = number
        found.valid[left] = obeys
        better = torch.tensor(left, device=outputs.device)[obeys]
        found.outputs[better] = outputs[obeys].to(found.outputs.dtype)
    return found


def _obeys(task: Task, batch: Batch, outputs: Float[Tensor, "b q o"]) -> Bool[Tensor, "b"]:
    """Which answers obey the task's rules."""
    best = outputs.float().softmax(dim=-1).max(dim=-1)
    answers, sure = best.indices.cpu().numpy(), best.values.cpu().numpy()
    own = batch.to(torch.device("cpu"))
    shown = (task.show(own.rows([i]), answers[i], sure[i]) for i in range(len(batch)))
    return torch.tensor([one.obeys for one in shown], device=outputs.device)
