"""Reading run folders. Everything a report says comes from these files, and from nothing else."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graph_machine.conditions.budgets import BUDGETS, base_for
from graph_machine.conditions.registry import BASE, CONDITIONS
from graph_machine.config import ExperimentConfig, SudokuConfig
from graph_machine.errors import DataError, GraphMachineError

# These settings say what is written down while a run goes, and change nothing in its result.
OF_NO_CONSEQUENCE = (
    "train.log_every",
    "train.eval_every",
    "train.eval_puzzles",
    "train.save_every",
)


@dataclass(frozen=True)
class RunRecord:
    """One run folder, read."""

    path: Path
    condition: str
    budget: str
    seed: int
    config: ExperimentConfig
    data: dict[str, Any]
    status: str
    started: str = ""
    error: str | None = None
    result: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def board_accuracy(self) -> float:
        """In percent, as the paper prints it."""
        assert self.result is not None
        return 100.0 * self.result["board_accuracy"]

    @cached_property
    def signature(self) -> "Signature":
        return signature(self)

    @cached_property
    def flops_per_step(self) -> int | None:
        """As recorded; counted anew for runs that are older than the count."""
        recorded = (self.result or {}).get("flops_per_step")
        if recorded is not None:
            return recorded
        from graph_machine.training.flops import flops_per_step

        return flops_per_step(self.config)

    @property
    def flops(self) -> int | None:
        """Of the whole training."""
        each = self.flops_per_step
        return None if each is None else each * self.config.train.steps

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line that was cut short is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records


@dataclass(frozen=True, order=True)
class Signature:
    """What two runs must share to be averaged: everything but the condition and the seed.

    `overrides` is what the run sets otherwise than its condition does at its named budget, so the
    same sweep has one signature for all its conditions, whatever these change.
    """

    budget: str
    board: str
    base: str  # the budget's base config, so that a budget that is redefined is another one
    overrides: tuple[str, ...]
    data: str

    @property
    def is_paper_recipe(self) -> bool:
        return self.budget == "paper" and self.board == "9x9" and not self.overrides


@dataclass
class Runs:
    """All runs below some folders, and what could not be read."""

    runs: list[RunRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def board_of(config: ExperimentConfig) -> str:
    if isinstance(config.task, SudokuConfig):
        rows, cols = config.task.box_shape
        return f"{rows * cols}x{rows * cols}"
    return config.task.name


def _base(run: RunRecord) -> ExperimentConfig:
    """The config that the run's condition has changed."""
    if run.budget in BUDGETS and isinstance(run.config.task, SudokuConfig):
        return base_for(run.budget, run.config.task.box)
    return BASE.replace(task=run.config.task)


def signature(run: RunRecord) -> Signature:
    base = _base(run)
    expected = CONDITIONS[run.condition].change(base) if run.condition in CONDITIONS else base
    return Signature(
        run.budget,
        board_of(run.config),
        json.dumps({k: v for k, v in base.flat().items() if k not in OF_NO_CONSEQUENCE}),
        tuple(
            f"{key}={value}"
            for key, value in sorted(run.config.differences(expected).items())
            if key not in OF_NO_CONSEQUENCE
        ),
        str(run.data.get("identity")),
    )


def read_run(folder: Path) -> RunRecord:
    """One run folder; DataError where its files do not describe a run."""
    record = _json(folder / "run.json")
    result = _json(folder / "result.json") if (folder / "result.json").exists() else None
    if record.get("format") != "graph-machine-run" or record.get("version") != 1:
        raise DataError(f"run.json is not of format graph-machine-run, version 1: {folder}")
    if result is not None and not isinstance(result.get("board_accuracy"), (int, float)):
        raise DataError(f"result.json has no board_accuracy: {folder}")
    try:
        return RunRecord(
            path=folder,
            condition=record["condition"] or "custom",
            budget=record["budget"],
            seed=record["seed"],
            config=ExperimentConfig.from_dict(record["config"]),
            data=record["data"],
            status="finished" if result is not None else record["status"],
            started=record.get("started", ""),
            error=record.get("error"),
            result=result,
        )
    except (KeyError, TypeError, GraphMachineError) as error:
        raise DataError(f"run.json does not describe a run ({error!s}): {folder}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{path.name} is damaged (not valid JSON): {path}") from None
    if not isinstance(data, dict):
        raise DataError(f"{path.name} should be an object: {path}")
    return data


def read_runs(roots: Sequence[str | Path]) -> Runs:
    """Every run below `roots`. Of two runs that are the same, the later one counts."""
    found = Runs()
    kept: dict[tuple[str, Signature, int], RunRecord] = {}
    folders: dict[Path, None] = {}
    for root in roots:
        if not Path(root).is_dir():
            raise DataError(f"There is no folder of runs here: {root}")
        for folder, below, files in os.walk(root):
            below.sort()
            if "run.json" in files:
                folders[Path(folder).resolve()] = None
                below.clear()
    for folder in folders:
        try:
            run = read_run(folder)
        except DataError as error:
            found.problems.append(str(error))
            continue
        key = (run.condition, run.signature, run.seed)
        other = kept.get(key)
        if other is not None:
            keep, drop = sorted((other, run), key=lambda r: (r.finished, r.started), reverse=True)
            found.problems.append(f"The same run twice; {keep.path} counts, not {drop.path}")
            run = keep
        kept[key] = run
    found.runs = list(kept.values())
    if not found.runs:
        bad = found.problems
        why = f" ({len(bad)} could not be read: {bad[0]})" if bad else ""
        raise DataError(f"No runs here{why}: {', '.join(map(str, roots))}")
    return found
