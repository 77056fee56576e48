"""What `graph-machine evaluate` prints, from reports alone."""

from typing import Any

import pytest

from graph_machine.lab.cli.evaluate import report_text
from graph_machine.lab.config import JigsawConfig, MazeConfig, RecallConfig, TaskConfig, TextConfig
from graph_machine.lab.tasks.base import task_of


def report(task: TaskConfig, **changes: Any) -> dict[str, Any]:
    metrics = task_of(task).metrics
    part: dict[str, Any] = {metric.name: 0.5 for metric in metrics} | {"examples": 4}
    part["intervals"] = {metrics[0].name: [0.25, 0.75]}
    groups = {by.group: {"8": part, "16": part} for by in task_of(task).groupings}
    facts = {"model": "m", "parameters": 7, "data": "all of it", "loss": 1.0, "groups": groups}
    return part | facts | {"examples_per_second": 3.0, "mixes": {}, "references": {}} | changes


@pytest.mark.parametrize(
    ("task", "count", "line"),
    [
        (TextConfig(), None, "trained on    not counted for text: some of these windows may"),
        (MazeConfig(), None, "trained on    unknown: the data that the model was trained on is"),
        (MazeConfig(), 3, "trained on    3 of these mazes, so accuracy on new ones may be lower"),
        (JigsawConfig(), 3, "trained on    regions of 3 of these puzzles, so accuracy"),
        (JigsawConfig(), 0, "trained on    regions of 0 of these puzzles"),
    ],
)
def test_what_is_known_about_training(task: TaskConfig, count: int | None, line: str) -> None:
    lines = report_text(report(task, trained_on=count), task_of(task)).splitlines()
    assert any(found.startswith(line) for found in lines)


def test_every_metric_is_told_by_group_and_names_stay_in_columns() -> None:
    config = RecallConfig()
    whole = report(config)
    whole["references"] = {"look it up": whole, "a baseline of many words": whole}
    lines = report_text(whole, task_of(config)).splitlines()
    at = lines.index("examples by pairs")
    assert lines[at + 1].endswith("4   50.00%  (25.00% to 75.00%)  queries  50.00%")
    last = lines[-2:]
    assert len({line.index("  examples") for line in last}) == 1
