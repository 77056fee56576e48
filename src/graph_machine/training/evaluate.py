"""Accuracy on a split: per-example scores first, then shares of anything one may ask for."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import nn

from graph_machine.config import TrainConfig
from graph_machine.tasks.base import Band, Batch, Split, Task
from graph_machine.training.devices import autocast
from graph_machine.training.distributed import ALONE, Processes
from graph_machine.training.losses import answer_losses

BATCH = 256


def wilson(right: float | int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson): sensible also at 0 and 1 and for few examples."""
    if total == 0:
        return 0.0, 1.0
    share, spread = right / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Scores:
    """Per example: loss, nodes that count, nodes right, all right; and the task's groups."""

    values: dict[str, Shaped[np.ndarray, "b"]]
    groups: dict[str, Shaped[np.ndarray, "b"]]
    seconds: float

    def __len__(self) -> int:
        return len(self.values["loss"])

    def summary(self, rows: Bool[np.ndarray, "b"] | None = None) -> dict[str, Any]:
        """Accuracies over all examples, or over some rows."""
        chosen = {n: v if rows is None else v[rows] for n, v in self.values.items()}
        cells = chosen["cells"].sum()
        return {
            "puzzles": len(chosen["loss"]),
            "board_accuracy": float(chosen["board_right"].mean()) if len(chosen["loss"]) else None,
            "cell_accuracy": float(chosen["cells_right"].sum() / cells) if cells else None,
            "loss": float(chosen["loss"].mean()) if len(chosen["loss"]) else None,
        }

    def by(self, group: str) -> dict[str, dict[str, Any]]:
        """A summary for each value of a group, such as the number of clues."""
        if group not in self.groups:
            return {}
        keys = self.groups[group]
        known = np.unique(keys[~np.isnan(keys)]).tolist()
        return {f"{key:g}": self.summary(keys == key) for key in known}

    def by_band(self, group: str, bands: Sequence[Band]) -> dict[str, dict[str, Any]]:
        """A summary for each band that has examples."""
        if group not in self.groups:
            return {}
        keys = self.groups[group]
        # A rating that is unknown is in no band.
        found = {b.label: (keys >= b.low) & (keys < b.high) for b in bands}
        return {label: self.summary(rows) for label, rows in found.items() if rows.any()}


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
    return Scores(values, groups, time.perf_counter() - start)


def _scores(
    model: nn.Module, task: Task, batch: Batch, config: TrainConfig
) -> dict[str, np.ndarray]:
    with autocast(config, batch.tokens.device):
        logits = model(batch.tokens, batch.graph, batch.node_mask).logits
    losses = answer_losses(logits, batch.answers, batch.where)
    return {"loss": losses.cpu().numpy()} | task.score(logits.argmax(dim=-1), batch)
