"""Tables from run folders: numbers, missing rows, budgets apart, other tasks, paired tests."""

import csv
import io
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from scipy import stats

from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.conditions.tables import TABLES
from graph_machine.lab.reports import curves
from graph_machine.lab.reports import summary as module
from graph_machine.lab.reports.render import csv_text, html, json_text, report_markdown
from graph_machine.lab.reports.runs import Runs, load_runs
from graph_machine.lab.reports.summary import REDUCED, Report, build_report, compare
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import Metric
from graph_machine.lab.training.flops import flops_per_step
from support.run_folders import make_run

T = TypeVar("T")


def some(value: T | None) -> T:
    """What may be None, and is not."""
    assert value is not None
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that no test changes."""
    tmp_path = tmp_path_factory.mktemp("runs")
    for seed, (gm, transformer) in enumerate([(0.98, 0.7), (1.0, 0.8), (0.99, 0.6)]):
        make_run(tmp_path, "gm", seed, gm, result={"baselines": {"singles only": 0.8}})
        make_run(tmp_path, "transformer", seed, transformer)
    make_run(tmp_path, "gm-rope", 0, 0.5)
    make_run(tmp_path, "gm-rope", 1, None, status="failed")
    make_run(tmp_path, "gm-sin-pe", 0, None, status="running")
    make_run(tmp_path, "gm-conditional", 0, 0.9)
    make_run(tmp_path, "my-idea", 0, 0.4, config=config_for("gm", "cpu"))
    # Another budget: never in the same row.
    make_run(tmp_path, "gm", 3, 0.1, budget="smoke")
    return tmp_path


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return build_report(load_runs([folder]))


def test_numbers_of_a_row(report: Report) -> None:
    cpu, smoke = report.groups
    section = cpu.sections[0]
    lines = {row.condition: row for row in section.rows}
    assert (section.name, section.reference) == ("1", "gm")
    gm = lines["gm"]
    assert (gm.mean, gm.deviation, gm.best, gm.second) == pytest.approx((99.0, 1.0, 100.0, 95.0))
    assert (len(gm.scores), gm.seeds, gm.parameters) == (3, 3, 500_000)
    assert gm.steps_batch_board_layers == "500 steps x 64, 4x4, 6 layers"
    assert gm.paper.mean == gm.paper_mean == 86.0
    assert (lines["transformer-static"].seeds, lines["transformer-static"].mean) == (0, None)
    found = lines["transformer"].comparison
    assert (found.mean, found.p_value) == (pytest.approx(-29.0), 0.25)
    last = smoke.sections[0].rows[-1]
    assert (last.mean, last.deviation) == (pytest.approx(10.0), None)


def test_a_report_is_a_data_frame(report: Report) -> None:
    frame = report.frame
    gm = frame[(frame["table"] == "1") & (frame["condition"] == "gm")].set_index("budget_name")
    assert gm["mean"].to_dict() == {"cpu": pytest.approx(99.0), "smoke": pytest.approx(10.0)}
    assert gm.loc["cpu", "seeds"] == 3
    assert frame["deviation"].mean() > 0  # missing values do not count
    assert build_report(Runs()).frame.empty


def test_every_table_that_has_runs_and_the_ones_asked_for(folder: Path, report: Report) -> None:
    cpu = report.groups[0]
    assert {s.name for s in cpu.sections} | set(cpu.absent) == {
        *(table.name for table in TABLES.values() if table.in_paper),
        "beyond",
    }
    assert cpu.absent == ("C.2", "C.3")
    assert [s.name for s in cpu.sections if not s.folded] == ["1", "2", "beyond"]
    chosen = build_report(load_runs([folder]), ["C.3", "2"])
    assert [s.name for s in chosen.groups[0].sections] == ["C.3", "2"]
    assert not any(row.seeds for row in chosen.groups[0].sections[0].rows)
    with pytest.raises(ConfigError, match="99"):
        build_report(load_runs([folder]), ["99"])


def test_a_table_stays_with_the_runs_of_its_task(folder: Path, tmp_path: Path) -> None:
    make_run(tmp_path, "maze-gm", 0, 0.4, config=config_for("maze-gm", "cpu"))
    runs = load_runs([folder, tmp_path])
    made = build_report(runs, ["maze", "1"])
    assert sorted(s.name for group in made.groups for s in group.sections) == ["1", "1", "maze"]
    (only,) = build_report(runs, ["maze"]).groups
    assert [section.name for section in only.sections] == ["maze"]
    with pytest.raises(ConfigError, match="jigsaw"):
        build_report(runs, ["jigsaw"])


def test_conditions_beyond_the_paper_have_their_own_table(report: Report) -> None:
    section = report.groups[0].sections[-1]
    assert section.heading == "Conditions beyond the paper"
    assert [row.label for row in section.rows] == ["gm-conditional", "my-idea", "(GM)"]
    assert all(row.paper is None for row in section.rows)


def test_references_without_learning(tmp_path: Path, report: Report) -> None:
    assert report.groups[0].baselines == {"singles only": pytest.approx(80.0)}
    for name, unrated in (("rated", 0), ("partly", 1)):
        bands = {"0.0": {"examples": 30}, "1.0-2.0": {"examples": 120 - unrated}}
        make_run(tmp_path / name, "gm", 0, result={"groups": {"rating": bands}})
    assert build_report(load_runs([tmp_path / "rated"])).groups[0].baselines == {
        "singles only (by rating)": pytest.approx(20.0),
        "exact solver (one solution each)": 100.0,
    }
    assert build_report(load_runs([tmp_path / "partly"])).groups[0].baselines == {}


def test_a_reduced_run_is_never_the_papers(tmp_path: Path, report: Report) -> None:
    for group in report.groups:
        assert group.warning == REDUCED
    assert report_markdown(report).count(REDUCED) == 2
    assert html(report).count("These are reduced runs, not the paper") == 2
    make_run(tmp_path / "p1", "gm", budget="paper")
    make_run(tmp_path / "p2", "gm", budget="paper", source="part.csv")
    for name, message in (("p1", "on generated puzzles"), ("p2", "on fewer puzzles")):
        assert message in build_report(load_runs([tmp_path / name])).groups[0].warning
    full = make_run(tmp_path / "p3", "gm", budget="paper", source="sudoku-3m.csv")
    record = json.loads((full / "run.json").read_text())
    record["data"]["size"] = 3_000_000
    (full / "run.json").write_text(json.dumps(record))
    (group,) = build_report(load_runs([tmp_path / "p3"])).groups
    assert (group.warning, group.signature.is_paper_recipe) == ("", True)


def test_markdown(report: Report) -> None:
    text = report_markdown(report)
    assert (
        "| GM | 1x | each | node, edge | 99.0 | 1.0 | 100.0 | 3 | 95.0 | 500,000 | 0.2 | 2.73 "
        "| 500 steps x 64, 4x4, 6 layers | 86.0 ± 3.7 (max 87.9) |" in text
    )
    assert "| condition | scale | node embeddings | attention | boards % |" in text
    assert "| Transformer-static | 1x | each | node, edge | missing |  |  | 0 |" in text
    assert "| 71.7 ± 3.2 (max 76.1), cells 96.3 |" in text
    assert "| 1.8 ± 1.9 (max 5.1), cells 77.3 |" in text
    assert "| Sin PE, base 10000 | missing (1 running) |" in text
    assert "| RoPE, base 10 | 50.0 |  | 50.0 | 1 (+ 1 failed) |" in text
    assert "- transformer - gm: -29.0 (95% interval" in text
    assert "3 seeds: too few for p below 0.25" in text
    assert "Note: The paper's mean for 16 contains an outlier" not in text  # table 4 is folded
    assert "Only rows that repeat table 1 were run of table 3, 4, 5, 6, 7, 8, C.1, C.4, C.5" in text
    assert "- singles only: 80.0%" in text
    assert "No runs at this budget for any row of table C.2, C.3." in text
    assert "Budget: 500 steps x 64, 4x4, 6 layers; 3,000 puzzles, generated" in text


def test_tables_that_are_asked_for_and_changed_settings(folder: Path, tmp_path: Path) -> None:
    text = report_markdown(build_report(load_runs([folder]), ["4"]))  # not folded
    assert "Note: The paper's mean for 16 contains an outlier" in text
    assert "Only rows that repeat" not in text
    make_run(tmp_path, "gm", config=config_for("gm", "cpu").with_train(steps=50))
    text = report_markdown(build_report(load_runs([tmp_path])))
    assert "## cpu budget, 4x4 boards, settings changed" in text
    assert "changed: train.steps=50" in text


def test_csv_and_json(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(report))))
    gm = next(row for row in rows if row["table"] == "1" and row["condition"] == "gm")
    assert float(gm["mean"]) == pytest.approx(99.0)
    assert (gm["seeds"], gm["budget_name"], gm["paper_recipe"]) == ("3", "cpu", "False")
    missing = next(row for row in rows if row["condition"] == "transformer-static")
    assert (missing["mean"], missing["seeds"], missing["flops"]) == ("", "0", "")
    assert (gm["seconds"], gm["flops"]) == ("10.0", "2730491904000")
    data = json.loads(json_text(report))
    assert data["format"] == "graph-machine-report"
    table = data["groups"][0]["tables"][0]
    assert [row["missing"] for row in table["rows"]] == [False, True, True, True, False]
    assert table["rows"][0]["comparison"]["p_value"] == 0.25


def test_the_page_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("<script>")
    report = build_report(load_runs([folder, tmp_path]))
    page = html(report, [curves.svg(group) for group in report.groups])
    assert page.count("<svg") == 2
    assert "Not counted" in page
    assert "<script" not in page
    for word in ('src="', "@import", "<link"):
        assert word not in page
    assert page.count("<table>") == report_markdown(report).count("\n### ") == 4


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_curves(folder: Path, report: Report, tmp_path: Path, ending: str) -> None:
    written = curves.save(report.groups, tmp_path / f"c.{ending}")
    assert [path.name for path in written] == [f"c-1.{ending}", f"c-2.{ending}"]
    assert all(path.stat().st_size > 5_000 for path in written)
    only = curves.save(report.groups[:1], tmp_path / f"one.{ending}")
    assert [path.name for path in only] == [f"one.{ending}"]


def test_curves_are_over_what_all_seeds_reached(folder: Path, tmp_path: Path) -> None:
    runs = [r for r in load_runs([folder]).runs if r.condition == "gm" and r.info.budget == "cpu"]
    found = some(curves.band(runs))
    assert found.at.tolist() == [100, 200, 300, 400, 500]
    assert (found.low[-1], found.mean[-1], found.high[-1]) == (98.0, pytest.approx(99.0), 100.0)
    # The mean over three seeds.
    assert some(curves.band(runs, "seconds")).at.tolist() == [26.0, 51.0, 76.0, 101.0, 126.0]
    # None of these records has it, so it is counted from their config.
    each = some(flops_per_step(config_for("gm", "cpu")))
    assert some(curves.band(runs, "flops")).at[-1] == 500 * each == runs[0].flops
    recorded = make_run(tmp_path / "recorded", "gm", result={"flops_per_step": 7})
    (run,) = load_runs([tmp_path / "recorded"]).runs
    assert run.flops == 3500
    text = (recorded / "metrics.jsonl").read_text().replace('"seconds"', '"unknown"')
    (recorded / "metrics.jsonl").write_text(text)
    (run,) = load_runs([tmp_path / "recorded"]).runs
    assert curves.band([run], "seconds") is None
    (group,) = build_report(load_runs([tmp_path / "recorded"])).groups
    panels = some(curves.draw_curves(group)).axes
    assert [axes.get_xlabel() for axes in panels] == ["step", "training compute, GFLOP"]
    assert [axes.get_ylabel() for axes in panels] == ["boards solved on the eval split, %", ""]


def test_cpu_time_takes_the_place_of_wall_time_where_it_was_counted(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", result={"cpu_seconds": 1000.0})
    (group,) = build_report(load_runs([tmp_path])).groups
    panels = some(curves.draw_curves(group, ["seconds"])).axes
    assert [axes.get_xlabel() for axes in panels] == ["CPU time, minutes"]
    (curve,) = curves.curves_of(group, "cpu").values()
    assert curve.at.tolist() == [200.0, 400.0, 600.0, 800.0, 1000.0]
    make_run(tmp_path, "gm", 1)
    (group,) = build_report(load_runs([tmp_path])).groups
    assert curves.times(group, curves.AGAINST) == ["steps", "seconds", "flops"]


def test_units() -> None:
    assert curves.unit("steps", 1e5)[0] == "step"
    for most, name in ((90.0, "seconds"), (600.0, "minutes"), (54_000.0, "hours")):
        assert curves.unit("seconds", most)[0] == f"wall time, {name}"
    for most, name in ((5e12, "TFLOP"), (6.4e16, "PFLOP")):
        assert curves.unit("flops", most)[0] == f"training compute, {name}"


def test_no_curves(tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with pytest.raises(ConfigError, match="jpg"):
        curves.save(report.groups, tmp_path / "c.jpg")
    bare = make_run(tmp_path / "bare")
    (bare / "metrics.jsonl").unlink()
    empty = build_report(load_runs([tmp_path / "bare"]))
    assert curves.svg(empty.groups[0]) is None
    with pytest.raises(DataError, match="curves"):
        curves.save(empty.groups, tmp_path / "c.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"graph-machine\[analysis\]"):
        curves.empty_figure(1.0, 1.0)


ERROR = {"title": "squared error", "share": False, "higher_is_better": False}


def text_run(root: Path, condition: str, seed: int, bits: float) -> None:
    config = config_for(condition, "cpu", task="text")
    metrics = {metric.name: metric.facts() for metric in task_of(config.task).metrics}
    found: dict[str, Any] = {"bits_per_byte": bits, "byte_accuracy": 0.4, "metrics": metrics}
    found["baselines"] = {"gzip -9": {"bits_per_byte": 1.9812}}
    make_run(root, condition, seed, 0.0, config=config, result=found)


@pytest.fixture
def text_report(tmp_path: Path) -> Report:
    for seed, bits in enumerate((3.423, 3.313)):
        text_run(tmp_path, "text-gm", seed, bits)
        text_run(tmp_path, "text-transformer", seed, bits + 0.2125)
    return build_report(load_runs([tmp_path]))


def test_a_metric_of_which_less_is_better(text_report: Report) -> None:
    text = report_markdown(text_report)
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
    page = html(text_report)
    assert ">bits per byte</th>" in page


def test_for_programs(text_report: Report) -> None:
    data = json.loads(json_text(text_report))
    assert data["unit"] == data["groups"][0]["unit"] == "bits per byte"
    assert data["groups"][0]["metrics"][0]["higher_is_better"] is False
    row = data["groups"][0]["tables"][0]["rows"][0]
    assert (row["best"], row["max"], row["byte_accuracy"]) == (3.313, 3.423, pytest.approx(40.0))
    table = csv.DictReader(io.StringIO(csv_text(text_report)))
    first = next(iter(table))
    assert (first["metric"], first["second_metric"]) == ("bits_per_byte", "byte_accuracy")
    assert (first["best"], first["cell_accuracy"]) == ("3.313", "")


def test_curves_have_the_task_s_own_axis(text_report: Report, tmp_path: Path) -> None:
    for path in tmp_path.rglob("metrics.jsonl"):
        path.write_text(path.read_text().replace('"board_accuracy"', '"bits_per_byte"'))
    (group,) = build_report(load_runs([tmp_path])).groups
    axes = some(curves.draw_curves(group, ["steps"])).axes[0]
    assert axes.get_ylabel() == "bits per byte on the eval split"
    assert axes.get_ylim()[1] < 1.5, "not an axis of percents"


def test_conditions_that_stand_in_tables_of_another_task_are_listed(tmp_path: Path) -> None:
    for condition in ("gm", "transformer"):
        text_run(tmp_path, condition, 0, 3.4)
    (group,) = build_report(load_runs([tmp_path])).groups
    (section,) = group.sections
    assert section.heading == "Other conditions"
    assert [row.condition for row in section.rows] == ["gm", "transformer"]
    assert section.reference == "gm"


def test_a_task_with_one_metric(tmp_path: Path) -> None:
    metrics = {"metrics": {"squared_error": ERROR}, "squared_error": 0.25}
    make_run(tmp_path, "text-gm", config=config_for("text-gm", "cpu"), result=metrics)
    text = report_markdown(build_report(load_runs([tmp_path])))
    assert "| condition | squared error | deviation | min | seeds | parameters |" in text
    assert "| GM | 0.250 |  | 0.250 | 1 | 500,000 |" in text


def test_words() -> None:
    boards = Metric("board_accuracy", "boards", "example_right")
    assert (boards.heading, boards.difference) == ("boards %", "points of board accuracy")
    assert boards.text(80.0) == "80.0%"
    assert boards.best([]) is None


def test_against_scipy() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(1.0, 1.0, 8), rng.normal(0.0, 1.0, 8)
    found = some(compare("a", "b", dict(enumerate(first)), dict(enumerate(second))))
    interval = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    how = {"permutation_type": "samples", "n_resamples": np.inf}
    exact = stats.permutation_test((first - second,), lambda x: np.mean(x), **how)
    assert found.p_value == pytest.approx(exact.pvalue)
    assert found.mean == pytest.approx((first - second).mean())
    assert found.note == ""


def test_few_seeds() -> None:
    found = some(compare("a", "b", {0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 1.0, 2: 1.0, 9: 0.0}))
    assert found.seeds == (0, 1, 2)
    assert found.p_value == found.smallest_p == 0.25
    assert str(found) == (
        "a - b: +3.0 (95% interval +0.5 to +5.5), p = 0.25, "
        "3 seeds: too few for p below 0.25, whatever the difference"
    )
    found = some(compare("a", "b", {0: 3.0}, {0: 1.0, 1: 1.0}))
    assert (found.low, found.high, found.p_value) == (None, None, None)
    assert str(found) == "a - b: +2.0, one seed: no test is possible"
    assert compare("a", "b", {0: 3.0}, {1: 1.0}) is None
    # 0.1 + 0.2 - 0.3 is not 0 in floating point: signs of the same sum count as the same.
    for scores in ({0: 0.0, 1: 0.0}, {0: 0.1, 1: 0.2, 2: -0.3}):
        found = some(compare("a", "b", scores, dict.fromkeys(scores, 0.0)))
        assert (found.mean, found.p_value) == (pytest.approx(0.0), 1.0)


def test_many_seeds_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    values = dict(enumerate(np.random.default_rng(0).normal(0.3, 1.0, 10)))
    zeros = dict.fromkeys(values, 0.0)
    exact = some(compare("a", "b", values, zeros))
    monkeypatch.setattr(module, "DRAWS", 1000)
    drawn = some(compare("a", "b", values, zeros))
    assert (exact.exact, drawn.exact) == (True, False)
    assert drawn.p_value == pytest.approx(exact.p_value, abs=0.05)
