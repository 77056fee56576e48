"""What a trained model is worth on a data file: accuracies, intervals, references, speed."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_machine.config import SudokuConfig, TaskConfig, TrainConfig
from graph_machine.errors import CheckpointError, DataError, MissingExtraError
from graph_machine.models import GraphMachine, load_model
from graph_machine.models.checkpoint import find_checkpoint, read_config
from graph_machine.tasks.base import Task, make_task
from graph_machine.tasks.sudoku.baselines import score_baselines
from graph_machine.tasks.sudoku.metrics import DATASET_SHARES, Tally
from graph_machine.tasks.sudoku.store import open_data
from graph_machine.tasks.sudoku.task import SudokuTask
from graph_machine.training import RunFolder, Scores, evaluate
from graph_machine.training.evaluate import wilson

Z = 1.96


@dataclass(frozen=True)
class Subject:
    """A loaded model with what its folder says of its task and its run."""

    name: str
    model: GraphMachine
    task: TaskConfig | None
    run: RunFolder | None  # None: a model without its run folder
    origin: dict[str, Any] | None = None  # seed and data of its training, as run.json has them


def load_subject(name: str) -> Subject:
    """A run folder, one of its checkpoints, or any other model."""
    model = load_model(name)
    folder = find_checkpoint(name)
    told = read_config(folder) if folder is not None else {}
    run = None
    for above in (Path(name), Path(name).parent, Path(name).parent.parent):
        # The name of a shipped model is no path, and the folder we are in says nothing about it.
        if Path(name).exists() and RunFolder(above).exists:
            run = RunFolder(above)
            break
    task = TaskConfig.from_dict(told["task"]) if told.get("task") else None
    # A shipped model has no run folder; what it was trained on is told beside its weights.
    origin = run.read() if run is not None else told if {"seed", "data"} <= told.keys() else None
    return Subject(name, model, task, run, origin)


def held_out(subject: Subject, data: str | None) -> tuple[Task, str]:
    """What to test on, and how to say so. Training data of the model's own run is never used."""
    run = subject.origin
    if data is None:
        return own_test_split(subject), "the test split of its own run"
    if subject.task is not None and not isinstance(subject.task, SudokuConfig):
        seed = run["seed"] if run else 0
        return make_task(subject.task, data, seed), f"the test split of {data}"
    store = open_data(data)
    if store.box.cells != subject.model.spec.num_nodes:
        raise DataError(
            f"The model reads boards of {subject.model.spec.num_nodes} cells, the data has "
            f"{store.box.cells} (box {store.box}): {data}"
        )
    if run is not None and run["data"]["identity"] == store.identity:
        config = SudokuConfig(box=str(store.box))
        return (
            SudokuTask(config, store=store, seed=run["seed"]),
            f"the test split of {data} (the model was trained on the rest)",
        )
    return SudokuTask.of_rows(store), f"all of {data}"


def own_test_split(subject: Subject) -> Task:
    """The rows that its own run held back."""
    run = subject.origin
    if run is None or subject.task is None:
        raise CheckpointError(
            f"This model has no run folder, so it has no test split of its own; give --data: "
            f"{subject.name}"
        )
    source = None if run["data"]["source"] == "generated" else run["data"]["source"]
    if source is not None and subject.run is None:
        raise CheckpointError(
            f"This model was trained on the file '{Path(source).name}', which does not come with "
            f"it; give it (or other puzzles) with --data: {subject.name}"
        )
    task = make_task(subject.task, source, run["seed"])
    if subject.run is None and task.identity != run["data"]["identity"]:
        raise CheckpointError(
            "The puzzles that this model was trained on cannot be made again by this version, so "
            f"its test split is not known; give --data: {subject.name}"
        )
    return task


def assess(
    subject: Subject,
    data: str | None,
    *,
    limit: int | None = None,
    batch_size: int = 256,
    precision: str = "auto",
) -> dict[str, Any]:
    """Everything that `graph-machine evaluate` tells, as plain data."""
    task, where = held_out(subject, data)
    config = TrainConfig().replace(precision=precision)
    scores = evaluate(
        subject.model, task, "test", config=config, limit=limit, batch_size=batch_size
    )
    report: dict[str, Any] = {
        "model": subject.name,
        "parameters": subject.model.num_parameters,
        "data": where,
        **with_intervals(scores.summary(), scores),
        "seconds": scores.seconds,
        "puzzles_per_second": len(scores) / max(scores.seconds, 1e-9),
        "bands": _with_intervals(scores.by_band(task.band_group, task.bands)),
        "by_clues": _with_intervals(scores.by("clues")),
    }
    report["natural_mix"] = natural_mix(report["bands"])
    report["references"] = references(task, limit)
    return report


def with_intervals(summary: dict[str, Any], scores: Scores | None = None) -> dict[str, Any]:
    """A summary with the 95% interval of its board accuracy.

    Cells of one board are not independent, so the interval of the cell accuracy comes from the
    spread between boards; it is told for the whole only.
    """
    total = summary["puzzles"]
    found = dict(summary)
    if total:
        low, high = wilson(summary["board_accuracy"] * total, total)
        found["board_interval"] = [low, high]
    if scores is not None and total > 1:
        share = summary["cell_accuracy"]
        cells, right = scores.values["cells"], scores.values["cells_right"]
        # Ratio estimator: residuals of each board around the common share.
        spread = float(((right - share * cells) ** 2).sum())
        error = math.sqrt(spread * total / (total - 1)) / max(1.0, float(cells.sum()))
        found["cell_interval"] = [max(0.0, share - Z * error), min(1.0, share + Z * error)]
    return found


def _with_intervals(parts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: with_intervals(part) for name, part in parts.items()}


def natural_mix(bands: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Board accuracy on Sudoku-3M's mix of ratings, estimated from the bands of another mix."""
    if any(name not in bands for name in DATASET_SHARES):
        return None
    share = variance = 0.0
    for name, weight in DATASET_SHARES.items():
        band = bands[name]
        share += weight * band["board_accuracy"]
        # Two successes and failures are added, so that a band at 0 or 1 is not called certain.
        lifted = (band["board_accuracy"] * band["puzzles"] + 2) / (band["puzzles"] + 4)
        variance += weight**2 * lifted * (1 - lifted) / (band["puzzles"] + 4)
    half = Z * math.sqrt(variance)
    return {
        "board_accuracy": share,
        "board_interval": [max(0.0, share - half), min(1.0, share + half)],
        "weights": dict(DATASET_SHARES),
    }


def references(task: Task, limit: int | None) -> dict[str, Any]:
    """The symbolic baselines on the same puzzles; nothing where the solvers are not installed."""
    if not isinstance(task, SudokuTask):
        return {}
    try:
        tallies = score_baselines(task.store, task.splits.test[:limit])
    except MissingExtraError:
        return {}
    return {name: _reference(tally) for name, tally in tallies.items()}


def _reference(tally: Tally) -> dict[str, Any]:
    mix = tally.dataset_board
    return {
        "board_accuracy": tally.total.board,
        "cell_accuracy": tally.total.cell,
        "natural_mix": None if math.isnan(mix) else mix,
    }
