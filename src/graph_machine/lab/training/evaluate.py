"""A task's metrics on a split: scores of single examples, which can be summed in any way."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graph_machine.lab.config import TrainConfig
from graph_machine.lab.opening import answer_in_tries, check_tries
from graph_machine.lab.tasks.base import Split, Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.training.devices import ALONE, Processes, autocast, precision_of
from graph_machine.models import GraphMachine
from graph_machine.models.predict import AS_TRAINED, Rounds, after_rounds, answer

BATCH = 256


# A batch -> for each way of answering: outputs, and further columns of scores.
Answers = Callable[[Batch], Sequence[tuple[Tensor, dict[str, Tensor]]]]


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    *,
    rounds: Rounds | None = None,
    tries: int = 1,
    **how: Any,
) -> Scores:
    """Scores of the first `limit` examples of a split (or all), shared out over the processes.

    With `rounds`, a recurrent core runs as they say, and the column `rounds` has the number that
    each example took. With more than one of `tries`, an answer that breaks the task's rules is
    retried in another form; the column `tries` counts them. `how` is as in `score_split`.

    >>> from graph_machine import open_model
    >>> subject = open_model("gm-4x4")
    >>> scores = evaluate(subject.model, subject.open_data(None), "test", limit=64)
    >>> scores.summary()["board_accuracy"] > 0.8
    True
    """

    check_tries(task, tries)

    def answers(batch: Batch) -> list[tuple[Tensor, dict[str, Tensor]]]:
        if rounds is None and tries == 1:
            return [(model(**batch.inputs).logits, {})]
        assert isinstance(model, GraphMachine)
        if tries > 1:
            found = answer_in_tries(model, task, batch, rounds or AS_TRAINED, tries)
            return [(found.outputs, {"rounds": found.rounds, "tries": found.tries})]
        assert rounds is not None
        outputs, used = answer(model, rounds, batch.inputs)
        return [(outputs, {"rounds": used})]

    return score_split(model, task, split, answers, 1, **how)[0]


def evaluate_rounds(
    model: GraphMachine, task: Task, split: Split, numbers: Sequence[int], **how: Any
) -> dict[int, Scores]:
    """Scores after each of some numbers of rounds, in one pass."""
    numbers = sorted(set(numbers))

    def answers(batch: Batch) -> list[tuple[Tensor, dict[str, Tensor]]]:
        return [(outputs, {}) for outputs in after_rounds(model, numbers, batch.inputs)]

    found = score_split(model, task, split, answers, len(numbers), **how)
    return dict(zip(numbers, found, strict=True))


@torch.no_grad()
def score_split(
    model: nn.Module,
    task: Task,
    split: Split,
    answers: Answers,
    ways: int,
    *,
    config: TrainConfig | None = None,
    limit: int | None = None,
    batch_size: int = BATCH,
    processes: Processes = ALONE,
) -> list[Scores]:
    """Scores of a split for each of several ways of answering its batches."""
    config = config or TrainConfig()
    device = next(model.parameters()).device
    total = task.sizes[split] if limit is None else min(limit, task.sizes[split])
    values: list[dict[str, np.ndarray]] = [{} for _ in range(ways)]
    groups: dict[str, np.ndarray] = {}

    def put(into: dict[str, np.ndarray], first: int, given: dict[str, np.ndarray]) -> None:
        for name, part in given.items():
            whole = into.setdefault(name, np.zeros(total, dtype=np.float64))
            whole[first : first + len(part)] = part

    was_training = model.training
    model.eval()
    start = time.perf_counter()
    first = 0
    try:
        for number, batch in enumerate(task.split_batches(split, batch_size, limit)):
            put(groups, first, batch.groups)
            if number % processes.size == processes.rank:
                batch = batch.to(device)
                with autocast(precision_of(config, device), device):
                    found = answers(batch)
                for into, (outputs, more) in zip(values, found, strict=True):
                    columns = {"loss": task.losses(outputs, batch)}
                    columns |= {**task.score(task.decide(outputs), batch), **more}
                    put(into, first, {name: c.cpu().numpy() for name, c in columns.items()})
            elif number == 0:
                # A process without a batch of its own still has to know what is summed.
                names = ("loss", *task.score(batch.answers, batch))
                for into in values:
                    put(into, 0, {name: np.zeros(0) for name in names})
            first += len(batch)
    finally:
        model.train(was_training)
    if processes.size > 1:
        for into in values:
            for name in into:
                into[name] = processes.sum(torch.from_numpy(into[name]).to(device)).cpu().numpy()
    seconds = time.perf_counter() - start
    return [Scores(into, groups, task.metrics, seconds) for into in values]
