"""Tables from run folders: numbers, missing rows, budgets apart, reduced runs told as such."""

import csv
import io
import json
from pathlib import Path

import pytest

from graph_machine.conditions.budgets import config_for
from graph_machine.conditions.tables import TABLES
from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.reports import curves
from graph_machine.reports.render import csv_text, json_text, report_markdown
from graph_machine.reports.render_html import html
from graph_machine.reports.runs import read_runs
from graph_machine.reports.summary import REDUCED, Report, build_report
from graph_machine.training.flops import flops_per_step
from support.run_folders import make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


@pytest.fixture
def report(folder: Path) -> Report:
    return build_report(read_runs([folder]))


def test_numbers_of_a_row(report: Report) -> None:
    cpu, smoke = report.groups
    table = cpu.sections[0]
    lines = {line.condition: line for line in table.lines}
    assert (table.name, table.reference) == ("1", "gm")
    gm = lines["gm"]
    assert gm.mean == pytest.approx(99.0)
    assert gm.deviation == pytest.approx(1.0)
    assert table.measures[0].best(gm.scores.values()) == pytest.approx(100.0)
    assert (len(gm.scores), gm.parameters, gm.second) == (3, 500_000, pytest.approx(95.0))
    assert gm.budget == "500 steps x 64, 4x4, 6 layers"
    assert gm.paper is not None
    assert gm.paper.mean == 86.0
    assert lines["transformer-static"].missing
    assert lines["transformer-static"].mean is None
    found = lines["transformer"].comparison
    assert found is not None
    assert (found.mean, found.p_value) == (pytest.approx(-29.0), 0.25)
    assert smoke.sections[0].lines[-1].mean == pytest.approx(10.0)
    assert smoke.sections[0].lines[-1].deviation is None


def test_every_table_that_has_runs_and_the_ones_asked_for(folder: Path, report: Report) -> None:
    cpu = report.groups[0]
    assert {s.name for s in cpu.sections} | set(cpu.absent) == {
        *(table.name for table in TABLES.values() if table.in_paper),
        "beyond",
    }
    assert cpu.absent == ("C.2", "C.3")
    assert [s.name for s in cpu.sections if s.has_own_runs] == ["1", "2", "beyond"]
    chosen = build_report(read_runs([folder]), ["C.3", "2"])
    assert [s.name for s in chosen.groups[0].sections] == ["C.3", "2"]
    assert all(line.missing for line in chosen.groups[0].sections[0].lines)
    with pytest.raises(ConfigError, match="Unknown table"):
        build_report(read_runs([folder]), ["99"])


def test_a_table_stays_with_the_runs_of_its_task(folder: Path) -> None:
    make_run(folder, "maze-gm", 0, 0.4, config=config_for("maze-gm", "cpu"))
    made = build_report(read_runs([folder]), ["maze", "1"])
    assert sorted(s.name for group in made.groups for s in group.sections) == ["1", "1", "maze"]
    (only,) = build_report(read_runs([folder]), ["maze"]).groups
    assert [section.name for section in only.sections] == ["maze"]
    with pytest.raises(ConfigError, match="No run here belongs to table jigsaw"):
        build_report(read_runs([folder]), ["jigsaw"])


def test_conditions_beyond_the_paper_have_their_own_table(report: Report) -> None:
    section = report.groups[0].sections[-1]
    assert section.heading == "Conditions beyond the paper"
    assert [line.label for line in section.lines] == ["gm-conditional", "my-idea", "(GM)"]
    assert all(line.paper is None for line in section.lines)


def test_references_without_learning(tmp_path: Path, report: Report) -> None:
    assert report.groups[0].baselines == {"singles only": pytest.approx(80.0)}
    for name, unrated in (("rated", 0), ("partly", 1)):
        bands = {"0.0": {"puzzles": 30}, "1.0-2.0": {"puzzles": 120 - unrated}}
        make_run(tmp_path / name, "gm", 0, result={"bands": bands})
    assert build_report(read_runs([tmp_path / "rated"])).groups[0].baselines == {
        "singles only (by rating)": pytest.approx(20.0),
        "exact solver (one solution each)": 100.0,
    }
    assert build_report(read_runs([tmp_path / "partly"])).groups[0].baselines == {}


def test_a_reduced_run_is_never_the_papers(tmp_path: Path, report: Report) -> None:
    for group in report.groups:
        assert group.warning == REDUCED
    assert report_markdown(report).count(REDUCED) == 2
    assert html(report).count("These are reduced runs, not the paper") == 2
    make_run(tmp_path / "p1", "gm", budget="paper")
    make_run(tmp_path / "p2", "gm", budget="paper", source="part.csv")
    for name, message in (("p1", "on generated puzzles"), ("p2", "on fewer puzzles")):
        assert message in build_report(read_runs([tmp_path / name])).groups[0].warning
    full = make_run(tmp_path / "p3", "gm", budget="paper", source="sudoku-3m.csv")
    record = json.loads((full / "run.json").read_text())
    record["data"]["size"] = 3_000_000
    (full / "run.json").write_text(json.dumps(record))
    (group,) = build_report(read_runs([tmp_path / "p3"])).groups
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


def test_a_table_that_is_asked_for_is_not_folded(folder: Path) -> None:
    text = report_markdown(build_report(read_runs([folder]), ["4"]))
    assert "Note: The paper's mean for 16 contains an outlier" in text
    assert "Only rows that repeat" not in text


def test_changed_settings_are_told(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", config=config_for("gm", "cpu").with_train(steps=50))
    text = report_markdown(build_report(read_runs([tmp_path])))
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


def test_the_page_needs_nothing_else(folder: Path, report: Report) -> None:
    (folder / "bad").mkdir()
    (folder / "bad" / "run.json").write_text("<script>")
    report = build_report(read_runs([folder]))
    page = html(report, [curves.svg(group) for group in report.groups])
    assert page.count("<svg") == 2
    assert "Not counted" in page
    assert "<script" not in page
    for word in ('src="', "@import", "<link"):
        assert word not in page
    assert page.count("<details") == page.count("</details>") == 23


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_curves(folder: Path, report: Report, tmp_path: Path, ending: str) -> None:
    written = curves.save(report.groups, tmp_path / f"c.{ending}")
    assert [path.name for path in written] == [f"c-1.{ending}", f"c-2.{ending}"]
    assert all(path.stat().st_size > 5_000 for path in written)
    only = curves.save(report.groups[:1], tmp_path / f"one.{ending}")
    assert [path.name for path in only] == [f"one.{ending}"]


def test_the_band_is_over_the_steps_that_all_seeds_reached(folder: Path) -> None:
    runs = [r for r in read_runs([folder]).runs if r.condition == "gm" and r.budget == "cpu"]
    found = curves.band(runs)
    assert found is not None
    assert found.at.tolist() == [100, 200, 300, 400, 500]
    assert (found.low[-1], found.mean[-1], found.high[-1]) == (98.0, pytest.approx(99.0), 100.0)


def test_other_axes(folder: Path, tmp_path: Path) -> None:
    runs = [r for r in read_runs([folder]).runs if r.condition == "gm" and r.budget == "cpu"]
    timed = curves.band(runs, "seconds")
    assert timed is not None
    assert timed.at.tolist() == [26.0, 51.0, 76.0, 101.0, 126.0]  # the mean over three seeds
    counted = curves.band(runs, "flops")
    assert counted is not None
    # None of these records has it, so it is counted from their config.
    each = flops_per_step(config_for("gm", "cpu"))
    assert each is not None
    assert counted.at[-1] == 500 * each == runs[0].flops
    told = make_run(tmp_path / "told", "gm", result={"flops_per_step": 7})
    (run,) = read_runs([tmp_path / "told"]).runs
    assert run.flops == 3500
    text = (told / "metrics.jsonl").read_text().replace('"seconds"', '"unknown"')
    (told / "metrics.jsonl").write_text(text)
    (run,) = read_runs([tmp_path / "told"]).runs
    assert curves.band([run], "seconds") is None
    (group,) = build_report(read_runs([tmp_path / "told"])).groups
    panels = curves.draw(group).axes
    assert [axes.get_xlabel() for axes in panels] == ["step", "training compute, GFLOP"]
    assert [axes.get_ylabel() for axes in panels] == ["boards solved on the eval split, %", ""]


def test_cpu_time_takes_the_place_of_wall_time_where_it_was_counted(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", result={"cpu_seconds": 1000.0})
    (group,) = build_report(read_runs([tmp_path])).groups
    panels = curves.draw(group, ["seconds"]).axes
    assert [axes.get_xlabel() for axes in panels] == ["CPU time, minutes"]
    (curve,) = curves.curves_of(group, "cpu").values()
    assert curve.at.tolist() == [200.0, 400.0, 600.0, 800.0, 1000.0]
    make_run(tmp_path, "gm", 1)
    (group,) = build_report(read_runs([tmp_path])).groups
    assert curves.times(group, curves.AGAINST) == ["steps", "seconds", "flops"]


@pytest.mark.parametrize(
    ("against", "most", "label"),
    [
        ("steps", 1e5, "step"),
        ("seconds", 90.0, "wall time, seconds"),
        ("seconds", 600.0, "wall time, minutes"),
        ("seconds", 54_000.0, "wall time, hours"),
        ("flops", 5e12, "training compute, TFLOP"),
        ("flops", 6.4e16, "training compute, PFLOP"),
    ],
)
def test_units(against: curves.Against, most: float, label: str) -> None:
    assert curves.unit(against, most)[0] == label


def test_no_curves(tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with pytest.raises(ConfigError, match=r"--curves should end in \.png or \.svg"):
        curves.save(report.groups, tmp_path / "c.jpg")
    bare = make_run(tmp_path / "bare")
    (bare / "metrics.jsonl").unlink()
    empty = build_report(read_runs([tmp_path / "bare"]))
    assert curves.svg(empty.groups[0]) is None
    with pytest.raises(DataError, match="No curves to draw"):
        curves.save(empty.groups, tmp_path / "c.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"graph-machine\[analysis\]"):
        curves.load_figure()
