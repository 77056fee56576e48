"""The run folder: everything that is known about one run, in files that others may read.

run.json       what is run (config, seed, data), with what, and its status
metrics.jsonl  one line per interval (kind `train`) and per evaluation (kind `eval`)
checkpoints/   see checkpoints.py
model/         the final model
result.json    the final metrics on the test split; there when and only when a run is finished
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graph_machine.errors import CheckpointError, DataError
from graph_machine.files import parse_object, read_object, write_bytes, write_json
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.run_files import (
    RESULT_FILE,
    RUN_FILE,
    RunInfo,
    RunResult,
    read_run,
)
from graph_machine.lab.tasks.base import Task, task_of

LOCK_FILE = ".lock"


class RunBusyError(CheckpointError):
    """Another process is training in this folder."""


def default_out(config: ExperimentConfig, condition: str | None, budget: str, seed: int) -> Path:
    """The folder of a run: `runs/<budget>/<label of the task>/<condition>/seed-<n>`.

    >>> from graph_machine.lab.conditions import config_for
    >>> default_out(config_for("gm", "cpu"), "gm", "cpu", seed=3).as_posix()
    'runs/cpu/4x4/gm/seed-3'
    """
    label = task_of(config.task).label
    return Path("runs") / budget / label / (condition or "custom") / f"seed-{seed}"


@dataclass(frozen=True)
class RunFolder:
    """Paths and small files of one run.

    >>> RunFolder(Path("runs/cpu/4x4/gm/seed-0")).finished
    False
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Folder of the final model."""
        return self.path / "model"

    @property
    def metrics(self) -> Path:
        """The file of metric lines."""
        return self.path / "metrics.jsonl"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RUN_FILE).exists()

    def check_free(self, resume: bool) -> None:
        """Nothing of another run may be taken for this one's, and none is begun again."""
        if self.exists and not resume:
            raise CheckpointError(
                f"There is already a run here. Continue it with --resume, or choose another --out: "
                f"{self.path}"
            )
        for name in ("checkpoints", RESULT_FILE, "model", "metrics.jsonl"):
            if not self.exists and (self.path / name).exists():
                raise CheckpointError(
                    f"This folder has {name}, but no {RUN_FILE} that says whose it is. Choose "
                    f"another --out, or remove what is left of that run: {self.path}"
                )

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return (self.path / RESULT_FILE).exists()

    def info(self) -> RunInfo:
        """The contents of run.json."""
        return RunInfo.from_dict(read_run(self.path))

    def check_same(
        self, config: ExperimentConfig, task: Task, seed: int, init_from: str | None
    ) -> RunInfo:
        """The contents of run.json; an error if the run began with other settings, data or seed."""
        before = self.info()
        old = ExperimentConfig.from_dict(before.config)
        changed = config.differences(old)
        if config.task.name != old.task.name:
            changed = {"task": config.task.name}
        flat = old.flat() | {"task": old.task.name}
        began = {key: (flat.get(key), value) for key, value in changed.items()}
        began |= {"seed": (before.seed, seed), "data": (before.data.identity, task.identity)}
        if init_from is not None:
            began["init_from"] = (before.init_from, init_from)
        what = [f"{key} was {was}, is {now}" for key, (was, now) in began.items() if was != now]
        if what:
            raise CheckpointError(
                f"This run began otherwise ({', '.join(what)}). Resume it with what it began with, "
                f"or start another run with --out: {self.path}"
            )
        return before

    def result(self) -> RunResult:
        """The contents of result.json."""
        path = self.path / RESULT_FILE
        try:
            return RunResult.from_dict(read_object(path, CheckpointError))
        except FileNotFoundError:
            raise CheckpointError(f"The run has no {RESULT_FILE} yet: {self.path}") from None
        except DataError as error:
            raise CheckpointError(f"{error}: {path}") from None

    def config(self) -> ExperimentConfig:
        """The config of the run."""
        return ExperimentConfig.from_dict(self.info().config)

    def update(self, **changes: Any) -> None:
        """Change some entries of `run.json`."""
        write_json(self.path / RUN_FILE, read_run(self.path) | changes)

    def extend(self, steps: int) -> ExperimentConfig:
        """Let a finished run continue to `steps`; its result so far is kept as result-STEPS.json.

        The learning rate follows the schedule of the longer run from here on. run.json says where
        the run was extended: it is not the same as one of that length.
        """
        config = self.config()
        before = config.train.steps
        if not self.finished:
            raise CheckpointError(f"Only a finished run can be extended; --resume it: {self.path}")
        if steps <= before:
            raise CheckpointError(f"The run has {before} steps, extend it to more: {self.path}")
        longer = config.with_train(steps=steps)
        with self.locked():
            # In this order: a kill in between leaves the old run, to be tested again.
            (self.path / RESULT_FILE).rename(self.path / f"result-{before}.json")
            extended = [*self.info().extended, before]
            self.update(config=longer.to_dict(), extended=extended, status="interrupted")
        return longer

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time writes here; the lock's file names it. A kill releases the lock."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK_FILE)
        try:
            lock.acquire(timeout=1.0)  # `holder` holds it for a moment
        except Timeout:
            raise RunBusyError(
                f"Another process is training in this folder ({self.holder()}): {self.path}"
            ) from None
        try:
            (self.path / LOCK_FILE).write_text(f"process {os.getpid()} on {socket.gethostname()}")
            yield
        finally:
            lock.release()

    def holder(self) -> str | None:
        """Who works on this run now, as `process 7 on HOST`; None: no process does."""
        path = self.path / LOCK_FILE
        if not path.exists():
            return None
        try:
            with FileLock(path, blocking=False):
                return None
        except Timeout:
            return path.read_text(errors="replace") or "just started"
        except OSError:  # a folder that cannot be written to is not being trained in
            return None

    def truncate_metrics(self, step: int) -> str | None:
        """Forget metric lines after `step`, and a last line that was cut short by a kill.

        Any other line that cannot be read is damage: a copy of the file is kept, and the
        returned line says so.
        """
        path = self.metrics
        if not path.exists():
            lost = f"{path.name} is missing: the metrics of the first {step} steps are lost: {path}"
            return lost if step else None
        content = path.read_bytes()
        lines = content.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        steps: list[int | None] = []
        for line in lines:
            try:
                at = parse_object(line, "A line", path, DataError).get("step")
            except DataError:
                at = None
            steps.append(at if type(at) is int else None)
        kept = b"".join(line for line, at in zip(lines, steps) if at is not None and at <= step)
        message = None
        if None in steps:
            number = len(list(path.parent.glob(f"{path.stem}.damaged-*")))
            aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
            write_bytes(aside, content)
            message = (
                f"{steps.count(None)} of {len(lines)} lines of {path.name} could not be read and "
                f"were left out; the file as it was: {aside}"
            )
        if kept != content:
            write_bytes(path, kept)
        return message

    def close(self) -> None:
        """Tidy up after a run that was killed once its result was written."""
        if self.info().status != "finished":
            self.tidy()
            self.update(status="finished", error=None)

    def tidy(self) -> None:
        """Delete half-written files that a killed process left behind."""
        for folder in (self.path, self.model):
            for left in folder.glob(".*.tmp"):
                left.unlink(missing_ok=True)


def commit() -> str | None:
    """The commit of the source that runs, where it is a git checkout; `+` marks changes."""
    here = Path(__file__).resolve()

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here.parent), *words], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() or None if done.returncode == 0 else None

    # Installed inside another repository, this file is not tracked by that one.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty=+", "--abbrev=12")
