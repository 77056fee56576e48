"""Runs as reports see them: checked, with their distinguishing settings, each counted once.

Everything that a report says comes from run records (`storage.py`), and from nothing else.
"""

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graph_machine.conditions.budgets import BUDGETS, base_for, size_of
from graph_machine.conditions.registry import BASE, CONDITIONS
from graph_machine.config import ExperimentConfig
from graph_machine.config.legacy import modern_result
from graph_machine.errors import DataError, GraphMachineError
from graph_machine.plugins import load_remembered
from graph_machine.reports.measures import Measure
from graph_machine.reports.storage import Stored, stored_runs
from graph_machine.run_files import RUN_FILE, check_run
from graph_machine.tasks.base import task_of

# These settings say what is written down while a run goes, and change nothing in its result.
OF_NO_CONSEQUENCE = (
    "train.log_every",
    "train.eval_every",
    "train.eval_examples",
    "train.save_every",
)

# What reports read of a run's files, and the kind of it; `?` marks what may be absent.
RUN = {
    "condition": str | None, "budget": str, "seed": int,
    "config": dict, "data": dict, "status": str, "started?": str, "error?": str | None,
    "init_from?": str | None,
}  # fmt: skip
DATA = {"identity?": str | None, "source?": str | None, "size?": int | None}
RESULT = {
    "metrics": dict, "seconds?": int | float, "parameters?": int, "flops_per_step?": int | None,
    "test_examples?": int | None, "groups?": dict, "baselines?": dict | None,
}  # fmt: skip
LARGEST = 1e24  # of a number in a record; larger ones, nan and infinity are damage
EVALUATION = {"step": int, "seconds?": int | float}


@dataclass(frozen=True)
class RunRecord:
    """One run, as it was recorded; `read_runs` makes them."""

    stored: Stored
    condition: str
    budget: str
    seed: int
    config: ExperimentConfig
    data: dict[str, Any]
    status: str
    started: str = ""

    @property
    def path(self) -> Path:
        """Its folder, or the study file that holds it."""
        return self.stored.path

    @cached_property
    def result(self) -> dict[str, Any] | None:
        return None if self.stored.result is None else modern_result(self.stored.result)

    @property
    def finished(self) -> bool:
        """Whether it has a result."""
        return self.result is not None

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """What its task reports, by name; the first one decides."""
        known = {m.name: m.facts() for m in task_of(self.config.task).metrics}
        return known if self.result is None else self.result["metrics"]

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The same, in the words of a report."""
        return tuple(
            Measure(name, facts["title"], facts["share"], facts.get("higher_is_better", True))
            for name, facts in self.metrics.items()
        )

    @property
    def deciding(self) -> str:
        """The name of the metric that decides, such as `board_accuracy`."""
        return next(iter(self.metrics))

    def points(self, value: float, name: str | None = None) -> float:
        """A metric as it is printed: a share in percent, as in the paper."""
        return 100.0 * value if self.metrics[name or self.deciding]["share"] else value

    @property
    def second_score(self) -> float | None:
        """The metric after the deciding one, where there is one: cells, in Sudoku."""
        name = next(iter([*self.metrics][1:]), "")
        value = (self.result or {}).get(name)
        return None if value is None else self.points(value, name)

    @property
    def score(self) -> float:
        """The metric that decides; in percent, where it is a share."""
        assert self.result is not None
        return self.points(self.result[self.deciding])

    @cached_property
    def signature(self) -> "Signature":
        return signature(self)

    @property
    def row(self) -> str:
        """Its condition and what was changed in it: the label of a row among such rows."""
        return ", ".join((self.condition, *self.signature.overrides))

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
    """All runs below some folders, and what could not be read.

    >>> len(Runs().runs)
    0
    """

    runs: list[RunRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _base(run: RunRecord) -> ExperimentConfig:
    """The config that the run's condition has changed."""
    if run.budget in BUDGETS:
        return base_for(run.budget, size_of(run.config.task)[1], run.config.task.name)
    return BASE.replace(task=run.config.task)


def signature(run: RunRecord) -> Signature:
    base = _base(run)
    expected = CONDITIONS[run.condition].changed(base) if run.condition in CONDITIONS else base
    return Signature(
        run.budget,
        task_of(run.config.task).label,
        json.dumps({k: v for k, v in base.flat().items() if k not in OF_NO_CONSEQUENCE}),
        tuple(
            f"{key}={value}"
            for key, value in sorted(run.config.differences(expected).items())
            if key not in OF_NO_CONSEQUENCE
        )
        # What was extended had another learning rate on its way.
        + tuple(f"extended at {step}" for step in run.stored.run.get("extended", []))
        + _warm_start(run),
        str(run.data.get("identity")),
    )


def _warm_start(run: RunRecord) -> tuple[str, ...]:
    """What the run began with; seeds that each begin with the run of their own seed are alike."""
    source = run.stored.run.get("init_from")
    if source is None:
        return ()
    return (f"begun with {re.sub(rf'seed-{run.seed}(?![0-9])', 'seed-N', source)}",)


def check(name: str, record: Any, kinds: Mapping[str, Any]) -> None:
    """Raise for a key that is missing (unless marked `?`) or of a kind that reports cannot use."""
    if not isinstance(record, dict):
        raise DataError(f"{name} should be an object")
    for key, kind in kinds.items():
        key, optional = key.removesuffix("?"), key.endswith("?")
        if key not in record:
            if optional:
                continue
            raise DataError(f"{name} has no {key}")
        value = record[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            told = getattr(kind, "__name__", str(kind))
            raise DataError(f"{name}: {key} should be {told}, got {reprlib.repr(value)}")
        if isinstance(value, (int, float)) and not abs(value) < LARGEST:
            raise DataError(f"{name}: {key} is not a usable number, got {reprlib.repr(value)}")


def _check_result(found: dict[str, Any]) -> None:
    result = modern_result(found) if isinstance(found, dict) else found
    check("result.json", result, RESULT)
    names = [*result["metrics"]] or ["metrics"]
    check("result.json", result, {names[0]: int | float})
    check("result.json", result, dict.fromkeys(names[1:], int | float | None))
    groups = result.get("groups", {})
    check("result.json: groups", groups, dict.fromkeys(groups, dict))
    for parts in groups.values():
        for name, part in parts.items():
            check(f"result.json: {name}", part, {"examples": int})


def read_run(stored: Stored) -> RunRecord:
    """One run; DataError where its record does not describe one."""
    record = stored.run
    check_run(record, stored.path, DataError)
    try:
        check(RUN_FILE, record, RUN)
        check(f"{RUN_FILE}: data", record["data"], DATA)
        load_remembered(record.get("imports"), stored.path)
        if stored.result is not None:
            _check_result(stored.result)
        for line in stored.evaluations:
            check("metrics.jsonl", line, EVALUATION)
        return RunRecord(
            stored,
            condition=record["condition"] or "custom",
            budget=record["budget"],
            seed=record["seed"],
            config=ExperimentConfig.from_dict(record["config"]),
            data=record["data"],
            status="finished" if stored.result is not None else record["status"],
            started=record.get("started", ""),
        )
    except (TypeError, GraphMachineError) as error:
        where = "" if str(stored.path) in str(error) else f": {stored.path}"
        raise DataError(f"{error}{where}") from None


def read_runs(roots: Sequence[str | Path]) -> Runs:
    """Every run below `roots`. Of two runs that are the same, the later one counts.

    >>> from graph_machine.conditions import config_for
    >>> from graph_machine.training import train
    >>> config = config_for("gm", "smoke", settings=["train.steps=2"])
    >>> result = train(config, out="runs/gm", condition="gm", budget="smoke", progress="none")
    >>> [(run.condition, run.seed, run.status) for run in read_runs(["runs"]).runs]
    [('gm', 0, 'finished')]
    """
    found = Runs()
    kept: dict[tuple[str, Signature, int], RunRecord] = {}
    for stored in stored_runs(roots):
        try:
            if isinstance(stored, DataError):
                raise stored
            run = read_run(stored)
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
        if bad and len(roots) == 1 and str(roots[0]) in bad[0]:  # a path is said once
            raise DataError(f"No runs here; {len(bad)} could not be read: {bad[0]}")
        why = f" ({len(bad)} could not be read: {bad[0]})" if bad else ""
        raise DataError(f"No runs here{why}: {', '.join(map(str, roots))}")
    return found
