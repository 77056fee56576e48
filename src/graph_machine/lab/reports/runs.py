"""Run records as reports see them: checked, each counted once, as typed records and as a DataFrame.

A record is a run folder, as training writes it, or one line of a study file. A study,
NAME.study.jsonl, is a header line and then one line per run: its run.json, its result.json and its
evaluations by column. Training lines, which no table or curve reads, stay behind.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph_machine.errors import DataError, GraphMachineError, MissingExtraError
from graph_machine.files import parse_object, read_object, write_text
from graph_machine.lab import run_files
from graph_machine.lab.conditions.budgets import BUDGETS, base_for, size_of
from graph_machine.lab.conditions.registry import BASE, CONDITIONS, current_name
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.plugins import load_remembered
from graph_machine.lab.run_files import RUN_FILE, RunInfo, RunResult
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import Metric

if TYPE_CHECKING:
    from pandas import DataFrame

STUDY = ".study.jsonl"
HEADER = {"format": "graph-machine-study", "version": 1}

# These settings say what is written down during a run, and change nothing in its result.
OF_NO_CONSEQUENCE = (
    "train.log_every",
    "train.eval_every",
    "train.eval_examples",
    "train.save_every",
    "train.test_rounds",
)

EVALUATION = {"step": int, "seconds?": int | float}
# Columns of `read_runs` that are empty (NaN) for some runs.
NUMBERS = ("score", "second", "parameters", "seconds", "cpu_seconds", "flops", "test_examples")


def load_pandas() -> Any:
    """The module pandas, imported when it is needed."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "analysis", "A report") from None
    return pandas


@dataclass(frozen=True, order=True)
class Signature:
    """What two runs must share to be averaged: everything but the condition and the seed.

    `overrides` are the settings that the run has beyond those of its condition at its budget, so
    all conditions of a sweep share one signature.
    """

    budget: str
    board: str
    base: str  # the budget's base config: a budget that was redefined is another budget
    overrides: tuple[str, ...]
    data: str

    @property
    def is_paper_recipe(self) -> bool:
        return self.budget == "paper" and self.board == "9x9" and not self.overrides


@dataclass(frozen=True)
class RunRecord:
    """One run, as it was recorded below the folder (or study file) `root`; `load_runs` makes them.

    `load_runs` calls `check`, which validates it.
    """

    root: Path
    name: str
    run: dict[str, Any]  # the contents of run.json
    outcome: dict[str, Any] | None  # of result.json
    evaluations: list[Any]  # lines of metrics.jsonl

    @property
    def path(self) -> Path:
        """Its folder, or its place in a study file."""
        return self.root / self.name

    @cached_property
    def info(self) -> RunInfo:
        """The contents of run.json, checked."""
        return RunInfo.from_dict(self.run)

    @cached_property
    def result(self) -> RunResult | None:
        """The contents of result.json, checked."""
        return None if self.outcome is None else RunResult.from_dict(self.outcome)

    @cached_property
    def config(self) -> ExperimentConfig:
        """The config of the run."""
        return ExperimentConfig.from_dict(self.info.config)

    def check(self) -> None:
        """DataError if the record does not describe a run."""
        try:
            load_remembered(self.info.imports, self.path)
            _ = self.result
            for line in self.evaluations:
                run_files.check("metrics.jsonl", line, EVALUATION)
            _ = self.signature  # a config that its condition cannot take is found here
        except (TypeError, GraphMachineError) as error:
            where = "" if str(self.path) in str(error) else f": {self.path}"
            raise DataError(f"{error}{where}") from None

    @property
    def condition(self) -> str:
        """The present name of its condition."""
        return current_name(self.info.condition or "custom")

    @property
    def seed(self) -> int:
        """Of the split, the initialisation and the order of batches."""
        return self.info.seed

    @property
    def status(self) -> str:
        """`finished`, or what its record says."""
        return "finished" if self.finished else self.info.status

    @property
    def finished(self) -> bool:
        """Whether it has a result."""
        return self.outcome is not None

    @cached_property
    def measures(self) -> tuple[Metric, ...]:
        """The metrics of its task; the first one decides."""
        if self.result is None:
            return task_of(self.config.task).metrics
        return tuple(Metric.recorded(*item) for item in self.result.metrics.items())

    @property
    def score(self) -> float:
        """The metric that decides; in percent if it is a share."""
        assert self.result is not None
        return self.measures[0].points(self.result.score or 0.0)

    @property
    def second_score(self) -> float | None:
        """The metric after the deciding one, if any: cells, in Sudoku."""
        for measure in self.measures[1:2]:
            value = self.result.values[measure.name] if self.result else None
            return None if value is None else measure.points(value)
        return None

    @cached_property
    def signature(self) -> Signature:
        budget, task = self.info.budget, self.config.task
        base = BASE.replace(task=task)
        if budget in BUDGETS:
            base = base_for(budget, size_of(task)[1], task.name)
        known = self.condition in CONDITIONS
        expected = CONDITIONS[self.condition].changed(base) if known else base
        changed = sorted(self.config.differences(expected).items())
        overrides = [f"{key}={value}" for key, value in changed if key not in OF_NO_CONSEQUENCE]
        # An extended run had another learning rate on its way.
        overrides += [f"extended at {step}" for step in self.info.extended]
        if self.info.init_from is not None:  # seeds that each begin with the run of their own agree
            source = re.sub(rf"seed-{self.seed}(?![0-9])", "seed-N", self.info.init_from)
            overrides.append(f"init_from={source}")
        kept = {key: value for key, value in base.flat().items() if key not in OF_NO_CONSEQUENCE}
        board, data = task_of(task).label, self.info.data.identity
        return Signature(budget, board, json.dumps(kept), tuple(sorted(overrides)), data)

    @property
    def row(self) -> str:
        """Its condition and changed settings: the label of its row."""
        return ", ".join((self.condition, *self.signature.overrides))

    @cached_property
    def flops_per_step(self) -> int | None:
        """As recorded; for older runs, counted now."""
        if self.result is not None and self.result.flops_per_step is not None:
            return self.result.flops_per_step
        from graph_machine.lab.training.flops import flops_per_step

        return flops_per_step(self.config)

    @property
    def flops(self) -> int | None:
        """Of the whole training."""
        each = self.flops_per_step
        return None if each is None else each * self.config.train.steps

    def facts(self) -> dict[str, object]:
        """The run as one row of `read_runs`."""
        result, data, train = self.result, self.info.data, self.config.train
        names = [measure.name for measure in self.measures]
        row: dict[str, object] = {
            "condition": self.condition,
            "seed": self.seed,
            "budget": self.info.budget,
            "task": self.config.task.name,
            "board": self.signature.board,
            "overrides": self.signature.overrides,
            "status": self.status,
            "metric": names[0],
            "score": self.score if self.finished else None,
            "second_metric": names[1] if len(names) > 1 else None,
            "second": self.second_score,
            "parameters": result.parameters if result else None,
            "steps": train.steps,
            "batch_size": train.batch_size,
            "seconds": result.seconds if result else None,
            "cpu_seconds": result.cpu_seconds if result else None,
            "flops": self.flops if self.finished else None,
            "test_examples": result.test_examples if result else None,
            "data": self.signature.data,
            "data_source": data.source,
            "data_size": data.size,
            "started": self.info.started,
            "path": str(self.path),
        }
        values = result.values if result else dict.fromkeys(names)
        return row | {name: value for name, value in values.items() if name not in row}


@dataclass
class Runs:
    """All runs below some folders, and why others were not counted.

    >>> len(Runs().runs)
    0
    """

    runs: list[RunRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @cached_property
    def frame(self) -> "DataFrame":
        """One row per run, in the order of `runs`; see `read_runs`."""
        frame = load_pandas().DataFrame([run.facts() for run in self.runs])
        frame = frame.astype(dict.fromkeys(NUMBERS, float))
        frame.attrs["problems"] = list(self.problems)
        return frame


def load_runs(roots: Sequence[str | Path]) -> Runs:
    """Every run below `roots` as a typed record. Of two runs that are the same, the later counts.

    >>> from graph_machine.lab.conditions import config_for
    >>> from graph_machine.lab.training import train
    >>> config = config_for("gm", "smoke", settings=["train.steps=2"])
    >>> result = train(config, out="runs/gm", condition="gm", budget="smoke", progress="none")
    >>> [(run.condition, run.seed, run.status) for run in load_runs(["runs"]).runs]
    [('gm', 0, 'finished')]
    """
    problems: list[str] = []
    kept: dict[tuple[str, Signature, int], RunRecord] = {}
    for run in _records(roots):
        try:
            if isinstance(run, DataError):
                raise run
            run.check()
        except DataError as error:
            problems.append(str(error))
            continue
        key = (run.condition, run.signature, run.seed)
        if key in kept:
            pair = kept[key], run
            run = max(pair, key=lambda r: (r.finished, r.info.started))
            problems.append(
                f"The same run twice; {run.path} counts, not {pair[run is pair[0]].path}"
            )
        kept[key] = run
    if kept:
        return Runs([*kept.values()], problems)
    if problems and len(roots) == 1 and str(roots[0]) in problems[0]:  # a path is given once
        raise DataError(f"No runs here; {len(problems)} could not be read: {problems[0]}")
    why = f" ({len(problems)} could not be read: {problems[0]})" if problems else ""
    raise DataError(f"No runs here{why}: {', '.join(map(str, roots))}")


def read_runs(*roots: str | Path) -> "DataFrame":
    """Every run below some folders (and in study files) as a pandas DataFrame, one row per run.

    `score` is the metric that decides and `second` the one after it, in percent if they are
    shares. Each metric also has a column of its own, as recorded. `overrides` are the settings
    beyond those of the condition at its budget; average only over runs that share `budget`,
    `board`, `overrides` and `data`. `attrs["problems"]` says which records were left out.

    >>> from graph_machine.lab.conditions import config_for
    >>> from graph_machine.lab.training import train
    >>> config = config_for("gm", "smoke", settings=["train.steps=2"])
    >>> result = train(config, out="runs/gm", condition="gm", budget="smoke", progress="none")
    >>> runs = read_runs("runs")
    >>> runs[["condition", "seed", "status", "metric", "steps"]].values.tolist()
    [['gm', 0, 'finished', 'board_accuracy', 2]]
    """
    return load_runs(roots).frame


def _records(roots: Sequence[str | Path]) -> Iterator[RunRecord | DataError]:
    """Every run in and below `roots` (folders or study files), each place once.

    For a record that cannot be read, the error that says why.
    """
    seen: set[Path] = set()
    for root in map(Path, roots):
        for place in _places(root):
            if place.resolve() not in seen:
                seen.add(place.resolve())
                try:
                    yield from _read_study(place) if place.is_file() else [read_folder(place, root)]
                except DataError as error:
                    yield error


def _places(root: Path) -> Iterator[Path]:
    """Run folders and study files, in the order of their names."""
    if root.is_file():
        yield root
        return
    if not root.is_dir():
        raise DataError(f"There is no folder of runs here: {root}")
    for folder, below, files in os.walk(root):
        below.sort()
        if RUN_FILE in files:
            yield Path(folder)
            below.clear()
        else:
            yield from (Path(folder) / name for name in sorted(files) if name.endswith(STUDY))


def read_folder(folder: Path, root: Path) -> RunRecord:
    """The files of one run folder, unchecked; half a metrics line is left out."""
    root = (folder.parent if root == folder else root).resolve()
    result, metrics = folder / run_files.RESULT_FILE, folder / "metrics.jsonl"
    text = metrics.read_text(encoding="utf-8", errors="replace") if metrics.exists() else ""
    found = []
    for line in text.splitlines():
        if '"eval"' in line:
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return RunRecord(
        root,
        folder.resolve().relative_to(root).as_posix(),
        run_files.read_unchecked(folder, DataError),
        read_object(result, DataError) if result.exists() else None,
        [line for line in found if not isinstance(line, dict) or line.get("kind") == "eval"],
    )


def _read_study(path: Path) -> Iterator[RunRecord | DataError]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if parse_object(lines[0] if lines else "", "The header", path, DataError) != HEADER:
        raise DataError(f"Not a study of format {HEADER['format']}, version 1: {path}")
    for number, line in enumerate(lines[1:], start=2):
        try:
            kept = parse_object(line, f"Line {number}", path, DataError)
            columns = kept["evaluations"]
            rows = [
                {"kind": "eval"} | {k: v for k, v in zip(columns, row) if v is not None}
                for row in zip_longest(*columns.values())
            ]
            yield RunRecord(path.resolve(), str(kept["name"]), kept["run"], kept["result"], rows)
        except DataError as error:
            yield error
        except (KeyError, TypeError, AttributeError):
            yield DataError(f"Line {number} does not hold a run: {path}")


def write_study(path: Path, runs: Sequence[RunRecord]) -> None:
    """Pack runs into a study file (NAME.study.jsonl), one line each.

    >>> write_study(Path("mine.study.jsonl"), [])
    """
    if not path.name.endswith(STUDY):
        raise DataError(f"A study's name ends in {STUDY}, got '{path.name}'.")
    lines: list[dict[str, Any]] = [HEADER]
    for run in runs:
        keys = dict.fromkeys(key for line in run.evaluations for key in line if key != "kind")
        columns = {key: [line.get(key) for line in run.evaluations] for key in keys}
        # A study is made to be shared: data files keep their names, not their place on a machine.
        data = run.run["data"]
        if "source" in data:
            data = data | {"source": Path(data["source"]).name}
        info = {key: data if key == "data" else value for key, value in run.run.items()}
        about = {"name": run.name, "run": info, "result": run.outcome}
        lines.append({**about, "evaluations": columns})
    write_text(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
