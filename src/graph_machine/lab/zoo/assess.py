"""How good a trained model is on a data file: accuracies, intervals, references, speed."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError, DataError, MissingExtraError
from graph_machine.lab.config import TrainConfig
from graph_machine.lab.opening import LoadedModel
from graph_machine.lab.tasks.base import Task, baseline_scores, make_task
from graph_machine.lab.tasks.scores import Metric, Scores, Z, wilson
from graph_machine.lab.training import evaluate
from graph_machine.lab.training.evaluate import evaluate_rounds
from graph_machine.models.predict import AS_TRAINED, Rounds


def held_out(subject: LoadedModel, data: str | None) -> tuple[Task, str]:
    """What to test on, and how to say so. Training data of the model's own run is never used."""
    if data is None:
        return own_test_split(subject), "the test split of its own run"
    facts = subject.facts
    trained_on = facts["data"]["identity"] if subject.has_origin else None
    return subject.known_task.held_out(data, trained_on, subject.seed)


def own_test_split(subject: LoadedModel) -> Task:
    """The examples that its own run held back."""
    facts, why = subject.facts, ""
    if not subject.has_origin or subject.task is None:
        why = "has no run folder, so it has no test split of its own; give"
        raise CheckpointError(f"This model {why} --data: {subject.given_name}")
    source = None if facts["data"]["source"] == "generated" else facts["data"]["source"]
    if source is not None and subject.run is None:
        why = f"was trained on the file '{Path(source).name}', which does not come with it; give it"
        raise CheckpointError(f"This model {why} (or another) with --data: {subject.given_name}")
    task = make_task(subject.task.config, source, facts["seed"])
    if subject.run is None and task.identity != facts["data"]["identity"]:
        raise CheckpointError(
            "The examples that this model was trained on cannot be made again by this version, so "
            f"its test split is not known; give --data: {subject.given_name}"
        )
    return task


def tested_on(
    subject: LoadedModel, data: str | None, limit: int | None
) -> tuple[Task, dict[str, Any]]:
    """What to test on, and the head of a report: "the first 200 of 20,000 in a.csv", and how many
    of a file's examples the model was trained on, also under other digits.

    None if that is unknown: its training data is not here, or cannot be made again.
    """
    task, where = held_out(subject, data)
    size = task.sizes["test"]
    if limit is not None and limit < size:
        where = f"the first {limit:,} of {size:,} in {where.removeprefix('all of ')}"
    about: dict[str, Any] = {"model": subject.given_name, "data": where}
    if data is not None:
        about["trained_on"] = None
        with suppress(CheckpointError, DataError, MissingExtraError):
            about["trained_on"] = task.seen_in_training(own_test_split(subject), limit)
    return task, about


def assess(
    subject: LoadedModel,
    data: str | None,
    *,
    limit: int | None = None,
    batch_size: int = 256,
    precision: str = "auto",
    rounds: Rounds = AS_TRAINED,
    tries: int = 1,
) -> dict[str, Any]:
    """Everything that `graph-machine evaluate` reports, as plain data.

    >>> from graph_machine import open_model
    >>> found = assess(open_model("gm-4x4"), None, limit=64)
    >>> found["examples"], found["board_accuracy"] > 0.8
    (64, True)
    """
    most = rounds.check(subject.model)
    task, about = tested_on(subject, data, limit)
    config = TrainConfig().replace(precision=precision)
    how: dict[str, Any] = {"config": config, "limit": limit, "batch_size": batch_size}
    how |= {"rounds": rounds, "tries": tries}
    scores = evaluate(subject.model.for_spec(task.spec), task, "test", **how)
    report: dict[str, Any] = {
        **about,
        "parameters": subject.model.num_parameters,
        **with_intervals(scores.summary(), task.metrics, scores),
        "seconds": scores.seconds,
        "examples_per_second": len(scores) / max(scores.seconds, 1e-9),
        "groups": {
            by.group: {n: with_intervals(part, task.metrics) for n, part in scores.by(by).items()}
            for by in task.groupings
        },
        "references": references(task, limit),
    }
    if subject.model.core is not None:
        report["rounds"] = {
            "most": most,
            "trained": subject.model.config.rounds,
            "until_stable": rounds.until_stable,
            "mean": float(scores.values["rounds"].mean()),
        }
    if tries > 1:
        report["tries"] = tried(scores, task, tries)
    return report | {"mixes": mixes(scores, task)}


def references(task: Task, limit: int | None) -> dict[str, dict[str, Any]]:
    """Baseline scores on the same examples, by name."""
    found = {}
    for name, scores in baseline_scores(task, "test", limit).items():
        summary = scores.summary()
        # A compressor names no bytes: it has bits per byte, which decide, and nothing else.
        if summary[task.metrics[0].name] is not None:
            found[name] = summary | {"mixes": mixes(scores, task)}
    return found


def tried(scores: Scores, task: Task, most: int) -> dict[str, Any]:
    """The tries that were made, and the deciding share after 1, 2, 4, ... of them."""
    first, used = task.metrics[0], scores.values["tries"]
    right = scores.values[first.of]
    numbers = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    return {
        "most": most,
        "mean": float(used.mean()),
        "after": {str(number): float((right * (used <= number)).mean()) for number in numbers},
    }


def assess_rounds(
    subject: LoadedModel,
    data: str | None,
    numbers: Sequence[int],
    *,
    limit: int | None = None,
    batch_size: int = 256,
    precision: str = "auto",
) -> dict[str, Any]:
    """Accuracy of a recurrent model for each number of rounds in `numbers`, as plain data."""
    for number in numbers:
        subject.model.check_rounds(number)
    task, about = tested_on(subject, data, limit)
    config = TrainConfig().replace(precision=precision)
    how: dict[str, Any] = {"config": config, "limit": limit, "batch_size": batch_size}
    found = evaluate_rounds(subject.model.for_spec(task.spec), task, "test", numbers, **how)
    return {
        **about,
        "trained": subject.model.config.rounds,
        "rounds": {
            str(number): with_intervals(scores.summary(), task.metrics, scores)
            | {"mixes": mixes(scores, task)}
            for number, scores in found.items()
        },
    }


def with_intervals(
    summary: dict[str, Any], metrics: Sequence[Metric], scores: Scores | None = None
) -> dict[str, Any]:
    """A summary with the 95% intervals of its shares.

    Nodes of one example are not independent, so the interval of a share of nodes comes from the
    spread between examples, and only the whole has one.
    """
    total, intervals = summary["examples"], {}
    for metric in metrics:
        share = summary[metric.name]
        if not metric.is_share or share is None:
            continue
        if metric.per is None:
            intervals[metric.name] = list(wilson(share * total, total))
        elif scores is not None and total > 1:
            per, of = scores.values[metric.per], scores.values[metric.of]
            # Ratio estimator: residuals of each example around the common share.
            spread = float(((of - share * per) ** 2).sum())
            error = math.sqrt(spread * total / (total - 1)) / max(1.0, float(per.sum()))
            intervals[metric.name] = [max(0.0, share - Z * error), min(1.0, share + Z * error)]
    return summary | {"intervals": intervals}


def mixes(scores: Scores, task: Task) -> dict[str, dict[str, Any]]:
    """The deciding share on another mix of bands than these examples have, by the mix's name."""
    metric, found = task.metrics[0], {}
    for by in task.groupings:
        bands = scores.by(by)
        if by.weights is None or any(name not in bands for name in by.weights):
            continue
        share = variance = 0.0
        for name, weight in by.weights.items():
            value, count = bands[name][metric.name], bands[name]["examples"]
            share += weight * value
            # Two successes and failures are added: a band at 0 or 1 is not called certain.
            lifted = (value * count + 2) / (count + 4)
            variance += weight**2 * lifted * (1 - lifted) / (count + 4)
        half = Z * math.sqrt(variance)
        found[by.mix] = {
            metric.name: share,
            "intervals": {metric.name: [max(0.0, share - half), min(1.0, share + half)]},
            "weights": dict(by.weights),
        }
    return found
