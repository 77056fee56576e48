"""Run by test_kill.py: trains the same tiny run again and again, killed with SIGKILL.

With a source, a recurrent run with averaged weights and frozen parts that begins with that model.

One process forks a child for each attempt, so that an attempt takes no longer than its few steps.
`at N` kills the child at its N-th file operation; `after T` kills it from outside after T seconds.
Prints how each attempt ended.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.training import train
from support.runs import recurrent, tiny

OPERATIONS = ("replace", "fsync", "rmdir", "unlink", "truncate", "mkdir", "symlink")


def die_at(number: int) -> None:
    """Kill this process at its `number`-th operation on files, before or after it is done."""
    count = 0

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            mine = count
            if mine == number and number % 4 == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*args, **options)
            finally:
                if mine == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in OPERATIONS:
        setattr(os, name, watched(getattr(os, name)))


class Kind(NamedTuple):
    """What is trained, and how often it is killed."""

    config: ExperimentConfig
    source: str | None = None
    stride: int = 2  # file operations from one kill to the next
    at_random: int = 6


def kind_of(source: str | None) -> Kind:
    if source is None:
        return Kind(tiny(save_every=1))
    config = recurrent(steps=3, save_every=2, eval_every=100, freeze="nodes,stack")
    return Kind(config, source, stride=4, at_random=2)


def attempt(
    kind: Kind, out: Path, data: str, *, at: int | None = None, after: float | None = None
) -> int:
    """The status of one child: 0 if it finished, -9 if it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if at is not None:
                die_at(at)
            # Only a run that has not begun is told: from then on its folder has to know.
            source = None if (out / "run.json").exists() else kind.source
            train(kind.config, out=out, data=data, resume=True, progress="none", init_from=source)
            status = 0
        finally:
            os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, data: str, source: str | None = None) -> None:
    kind = kind_of(source)
    start = time.perf_counter()
    assert attempt(kind, folder / "whole", data) == 0
    length = time.perf_counter() - start
    at, killed = 1, 0
    # Each run gets a little further: sooner or later every kind of moment has been hit.
    while (status := attempt(kind, folder / "stepwise", data, at=at)) == -signal.SIGKILL:
        at += kind.stride
        killed += 1
    assert status == 0, status
    rng = random.Random(0)
    at_random = 0
    for _ in range(kind.at_random):
        status = attempt(kind, folder / "random", data, after=rng.uniform(0, length))
        assert status in (0, -signal.SIGKILL), status
        at_random += status != 0
    assert attempt(kind, folder / "random", data) == 0
    print(f"killed {killed} {at_random}")
