"""The run folder: everything that is known about one run, in files that others may read.

run.json       what is run (config, seed, data), with what, and how it stands
metrics.jsonl  one line per interval (kind `train`) and per evaluation (kind `eval`)
checkpoints/   see checkpoints.py
model/         the final model
result.json    the final metrics on the test split; there when and only when a run is finished
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_machine.config import ExperimentConfig, ModelConfig, TaskConfig
from graph_machine.config.legacy import modern_result
from graph_machine.errors import CheckpointError
from graph_machine.files import read_object, write_json
from graph_machine.locks import file_lock
from graph_machine.machine import hardware, versions
from graph_machine.models.checkpoint import read_config
from graph_machine.plugins import loaded
from graph_machine.run_files import FORMAT, RUN_FILE, VERSION, read_run
from graph_machine.tasks.base import Task, task_of
from graph_machine.training.metric_lines import truncate_metrics


def default_out(config: ExperimentConfig, condition: str | None, budget: str, seed: int) -> Path:
    """The folder of a run: `runs/<budget>/<label of the task>/<condition>/seed-<n>`.

    >>> from graph_machine.conditions import config_for
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

    def check_free(self) -> None:
        """Nothing of another run may be taken for this one's."""
        for name in ("checkpoints", "result.json", "model", "metrics.jsonl"):
            if not self.exists and (self.path / name).exists():
                raise CheckpointError(
                    f"This folder has {name}, but no {RUN_FILE} that says whose it is. Choose "
                    f"another --out, or remove what is left of that run: {self.path}"
                )

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return (self.path / "result.json").exists()

    def read(self, name: str = RUN_FILE) -> dict[str, Any]:
        """The contents of one of its JSON files."""
        if name == RUN_FILE:
            return read_run(self.path)
        try:
            return modern_result(read_object(self.path / name, CheckpointError))
        except FileNotFoundError:
            raise CheckpointError(f"No run here (there is no {name}): {self.path}") from None

    def config(self) -> ExperimentConfig:
        """What was trained."""
        return ExperimentConfig.from_dict(self.read()["config"])

    def update(self, **changes: Any) -> None:
        """Change some entries of `run.json`."""
        write_json(self.path / RUN_FILE, self.read() | changes)

    def extend(self, steps: int) -> ExperimentConfig:
        """Let a finished run continue to `steps`; its result so far is kept as result-STEPS.json.

        The learning rate follows the schedule of the longer run from here on. run.json tells where
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
            (self.path / "result.json").rename(self.path / f"result-{before}.json")
            extended = [*self.read().get("extended", []), before]
            self.update(config=longer.to_dict(), extended=extended, status="interrupted")
        return longer

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time writes here."""
        with file_lock(self.path / ".lock", wait=False) as mine:
            if not mine:
                raise CheckpointError(f"Another process is training in this folder: {self.path}")
            yield

    def settle(self) -> None:
        """Finish what a finished run did not get to if it was killed after writing its result."""
        if self.read()["status"] != "finished":
            self.tidy()
            self.update(status="finished", error=None)

    def tidy(self) -> None:
        """Delete half-written files that a killed process left behind."""
        for folder in (self.path, self.model):
            for left in folder.glob(".*.tmp"):
                left.unlink(missing_ok=True)

    def truncate_metrics(self, step: int) -> str | None:
        """Forget metric lines after `step`; a line for the user where others could not be read."""
        return truncate_metrics(self.metrics, step)


def describe_run(
    config: ExperimentConfig,
    task: Task,
    *,
    seed: int,
    condition: str | None,
    budget: str,
    init_from: str | None = None,
) -> dict[str, Any]:
    """The contents of `run.json` at the start."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "condition": condition,
        "budget": budget,
        "seed": seed,
        **({} if init_from is None else {"init_from": init_from}),
        **({"imports": loaded()} if loaded() else {}),
        "config": config.to_dict(),
        "data": {
            "identity": task.identity,
            "source": task.source,
            "size": sum(task.sizes.values()),
        },
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "error": None,
    }


def check_same_run(
    before: dict[str, Any],
    config: ExperimentConfig,
    task: Task,
    seed: int,
    where: Path,
    init_from: str | None = None,
) -> None:
    """A run continues with what it began with, or not at all."""
    old = ExperimentConfig.from_dict(before["config"])
    changed = config.differences(old)
    if config.task.name != old.task.name:
        changed = {"task": config.task.name}
    if changed:
        flat = old.flat()
        what = ", ".join(f"{k} was {flat.get(k)}, is {v}" for k, v in changed.items())
        raise CheckpointError(
            f"The config has changed since this run began ({what}). Resume with the old settings, "
            f"or start another run with --out: {where}"
        )
    if before["seed"] != seed:
        raise CheckpointError(f"This run began with seed {before['seed']}, not {seed}: {where}")
    if init_from is not None and init_from != (source := before.get("init_from")):
        began = "new weights" if source is None else f"the weights of {source}"
        raise CheckpointError(
            f"This run began with {began}, not with those of {init_from}. Leave --init-from out, "
            f"or start another run with --out: {where}"
        )
    if before["data"]["identity"] != task.identity:
        raise CheckpointError(
            f"The data has changed since this run began (identity was "
            f"{before['data']['identity']}, is {task.identity}). Give the data it began with, or "
            f"start another run with --out: {where}"
        )


def check_checkpoint(
    found: Path, config: ExperimentConfig, seed: int, identity: str, where: Path
) -> None:
    """A checkpoint says itself what it is of; older ones say less."""
    told = read_config(found)
    ours: dict[str, Any] = {"seed": seed, "data_identity": identity, "model": config.model}
    ours["task"] = config.task
    kinds = {"model": ModelConfig, "task": TaskConfig}
    for name, mine in ours.items():
        if name not in told:
            continue
        theirs = kinds[name].from_dict(told[name]) if name in kinds else told[name]
        if theirs != mine:
            raise CheckpointError(
                f"The checkpoint is of another run (its {name} is not this run's). Choose another "
                f"--out, or remove the checkpoints: {where}"
            )


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

    # Installed inside somebody's repository, this file is not among what that one tracks.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty=+", "--abbrev=12")
