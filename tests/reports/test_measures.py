"""Reports of other tasks than Sudoku: their own metrics, words and tables."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from graph_machine.conditions.budgets import config_for
from graph_machine.reports import curves
from graph_machine.reports.measures import Measure
from graph_machine.reports.render import csv_text, report_markdown
from graph_machine.reports.render_html import html
from graph_machine.reports.render_json import json_text
from graph_machine.reports.runs import read_runs
from graph_machine.reports.summary import Report, build_report
from graph_machine.tasks.base import task_of
from support.run_folders import make_run

ERROR = {"title": "squared error", "share": False, "higher_is_better": False}


def text_run(root: Path, condition: str, seed: int, bits: float) -> None:
    config = config_for(condition, "cpu", task="text")
    metrics = {metric.name: metric.facts() for metric in task_of(config.task).metrics}
    found: dict[str, Any] = {"bits_per_byte": bits, "byte_accuracy": 0.4, "metrics": metrics}
    found["baselines"] = {"gzip -9": {"bits_per_byte": 1.9812}}
    make_run(root, condition, seed, 0.0, config=config, result=found)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    for seed, bits in enumerate((3.423, 3.313)):
        text_run(tmp_path, "text-gm", seed, bits)
        text_run(tmp_path, "text-transformer", seed, bits + 0.2125)
    return build_report(read_runs([tmp_path]))


def test_a_metric_of_which_less_is_better(report: Report) -> None:
    text = report_markdown(report)
    assert "## cpu budget, text 64-bytes\n" in text
    assert "3,000 windows, generated" in text
    assert "| condition | bits per byte | deviation | min | seeds | bytes % |" in text
    assert "| GM | 3.368 | 0.078 | 3.313 | 2 | 40.0 |" in text
    assert "paper %" not in text
    assert "against text-gm, in bits per byte (lower is better):" in text
    assert "- text-transformer - text-gm: +0.212 (95% interval" in text
    assert "on the same test windows:\n\n- gzip -9: 1.981\n" in text
    for word in ("boards", "cells", "puzzles", "board accuracy"):
        assert word not in text
    page = html(report)
    assert "<th>bits per byte</th>" in page
    assert "--share: 3" not in page


def test_for_programs(report: Report) -> None:
    data = json.loads(json_text(report))
    assert data["unit"] == data["groups"][0]["unit"] == "bits per byte"
    assert data["groups"][0]["metrics"][0]["higher_is_better"] is False
    row = data["groups"][0]["tables"][0]["rows"][0]
    assert (row["best"], row["max"], row["byte_accuracy"]) == (3.313, 3.423, pytest.approx(40.0))
    table = csv.DictReader(io.StringIO(csv_text(report)))
    first = next(iter(table))
    assert (first["metric"], first["second_metric"]) == ("bits_per_byte", "byte_accuracy")
    assert (first["best"], first["cell_accuracy"]) == ("3.313", "")


def test_curves_have_the_task_s_own_axis(report: Report, tmp_path: Path) -> None:
    for path in tmp_path.rglob("metrics.jsonl"):
        path.write_text(path.read_text().replace('"board_accuracy"', '"bits_per_byte"'))
    (group,) = build_report(read_runs([tmp_path])).groups
    axes = curves.draw(group, ["steps"]).axes[0]
    assert axes.get_ylabel() == "bits per byte on the eval split"
    assert axes.get_ylim()[1] < 1.5, "not an axis of percents"


def test_conditions_that_stand_in_tables_of_another_task_are_listed(tmp_path: Path) -> None:
    for condition in ("gm", "transformer"):
        text_run(tmp_path, condition, 0, 3.4)
    (group,) = build_report(read_runs([tmp_path])).groups
    (section,) = group.sections
    assert section.heading == "Other conditions"
    assert [line.condition for line in section.lines] == ["gm", "transformer"]
    assert section.reference == "gm"


def test_a_task_with_one_metric(tmp_path: Path) -> None:
    metrics = {"metrics": {"squared_error": ERROR}, "squared_error": 0.25}
    make_run(tmp_path, "text-gm", config=config_for("text-gm", "cpu"), result=metrics)
    text = report_markdown(build_report(read_runs([tmp_path])))
    assert "| condition | squared error | deviation | min | seeds | parameters |" in text
    assert "| GM | 0.250 |  | 0.250 | 1 | 500,000 |" in text


def test_words() -> None:
    boards = Measure("board_accuracy", "boards")
    assert (boards.unit, boards.extreme) == ("board accuracy in percent", "max")
    assert boards.difference == "points of board accuracy"
    assert boards.show(80.0) == "80.0%"
    assert boards.best([]) is None
