"""Tiny real sweeps, and views that do something to a run when it has come to a step."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from graph_machine.lab.sweeps.grid import Job, make_grid
from graph_machine.lab.sweeps.progress import Entry, View
from graph_machine.lab.training import RunFolder

TINY = (
    "model.num_layers=1",
    "model.d_node=8",
    "task.puzzles=100",
    "train.batch_size=4",
    "train.log_every=1",
    "train.save_every=1",
    "train.eval_every=1000",
)


def tiny_jobs(out: Path, *conditions: str, steps: int, seeds: Sequence[int] = (0,)) -> list[Job]:
    settings = [*TINY, f"train.steps={steps}"]
    return make_grid(conditions, seeds, budget="smoke", settings=settings, out=out)


class Watch(View):
    """Calls `act` once, with the first entry, when its run has come to step `at`."""

    def __init__(self, at: int, act: Callable[[Entry], None]) -> None:
        super().__init__()
        self.at, self.act, self.done = at, act, False

    def update(self, entries: Sequence[Entry]) -> None:
        super().update(entries)
        if not self.done and entries[0].step >= self.at:
            self.done = True
            self.act(entries[0])


def worker_of(entry: Entry) -> int:
    """The process that has locked the run's folder."""
    holder = RunFolder(entry.job.out).holder()
    assert holder is not None
    return int(holder.split()[1])


def kill(entry: Entry) -> None:
    os.kill(worker_of(entry), signal.SIGKILL)


def interrupt(entry: Entry) -> None:
    raise KeyboardInterrupt


def steps_of(out: Path) -> list[int]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [r["step"] for line in lines if (r := json.loads(line))["kind"] == "train"]
