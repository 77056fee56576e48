"""A task's metrics on a split: scores of single examples, which may be summed up in any way."""

import time

import numpy as np
import torch
from torch import nn

from graph_machine.config import TrainConfig
from graph_machine.tasks.base import Split, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.scores import Scores
from graph_machine.training.devices import autocast
from graph_machine.training.distributed import ALONE, Processes

BATCH = 256


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    *,
    config: TrainConfig | None = None,
    limit: int | None = None,
    batch_size: int = BATCH,
    processes: Processes = ALONE,
) -> Scores:
    """Scores of the first `limit` examples of a split (or all), shared out over the processes."""
    config = config or TrainConfig()
    device = next(model.parameters()).device
    total = task.sizes[split] if limit is None else min(limit, task.sizes[split])
    values: dict[str, np.ndarray] = {}
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
                put(values, first, _scores(model, task, batch.to(device), config))
            elif number == 0:
                # A process without a batch of its own still has to know what is summed.
                names = ("loss", *task.score(batch.answers, batch))
                put(values, 0, {name: np.zeros(0) for name in names})
            first += len(batch)
    finally:
        model.train(was_training)
    if processes.size > 1:
        for name in values:
            values[name] = processes.sum(torch.from_numpy(values[name]).to(device)).cpu().numpy()
    return Scores(values, groups, task.metrics, time.perf_counter() - start)


def _scores(
    model: nn.Module, task: Task, batch: Batch, config: TrainConfig
) -> dict[str, np.ndarray]:
    with autocast(config, batch.where.device):
        outputs = model(**batch.inputs()).logits
    columns = {"loss": task.losses(outputs, batch), **task.score(task.decide(outputs), batch)}
    return {name: column.cpu().numpy() for name, column in columns.items()}
