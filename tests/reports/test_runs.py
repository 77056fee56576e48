"""Run folders and study files, read: what belongs together, what does not, what is not counted."""

import json
import shutil
from pathlib import Path

import pytest

from graph_machine.errors import DataError
from graph_machine.lab.cli import run as command
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.reports.curves import eval_curve
from graph_machine.lab.reports.render import json_text
from graph_machine.lab.reports.runs import STUDY, load_runs, read_folder, write_study
from graph_machine.lab.reports.summary import build_report
from support.run_folders import make_run


def test_one_sweep_has_one_signature(tmp_path: Path) -> None:
    """Whatever a condition changes, and also where it changes sizes."""
    for condition in ("gm", "transformer", "transformer-sin-pe-2x", "gm-edge-sublayers-8"):
        for seed in (0, 1):
            make_run(tmp_path, condition, seed)
    runs = load_runs([tmp_path]).runs
    assert len(runs) == 8
    assert len({run.signature for run in runs}) == 1
    assert runs[0].signature.overrides == ()
    assert not runs[0].signature.is_paper_recipe


def test_what_sets_runs_apart(tmp_path: Path) -> None:
    """Settings, data and budgets do; how often something is written down does not."""
    settings = {
        "train.steps": "600", "train.batch_size": "32", "train.peak_lr": "1e-4",
        "model.num_layers": "3", "model.init": "torch", "task.box": "2x3", "task.puzzles": "500",
        "train.test_examples": "10", "train.log_every": "7", "train.save_every": "7",
    }  # fmt: skip
    for seed, (key, value) in enumerate(settings.items()):
        make_run(tmp_path, "gm", seed, config=config_for("gm", "cpu").set(key, value))
    make_run(tmp_path, "gm", 20)
    make_run(tmp_path, "gm", 21, identity="other")
    make_run(tmp_path, "gm", 22, budget="smoke")
    make_run(tmp_path, "gm", 23, budget="custom", config=config_for("gm", "cpu"))
    kinds = {run.seed: run.signature for run in load_runs([tmp_path]).runs}
    assert kinds[8] == kinds[9] == kinds[20]
    assert len({*kinds.values()}) == len(kinds) - 2


def test_warm_starts_are_apart(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", 0)
    for seed, source in ((1, "gm-9x9"), (2, "runs/gm/seed-2"), (3, "runs/gm/seed-3/model")):
        begin_with(make_run(tmp_path, "gm", seed), source)
    begin_with(make_run(tmp_path, "gm", 4), "runs/gm/seed-4")
    runs = {run.seed: run for run in load_runs([tmp_path]).runs}
    assert len({run.signature for run in runs.values()}) == 4
    assert runs[2].signature == runs[4].signature  # each with the run of its own seed
    assert runs[1].row == "gm, init_from=gm-9x9"
    begin_with(make_run(tmp_path, "gm", 0, budget="paper"), "gm-9x9")
    assert not any(run.signature.is_paper_recipe for run in load_runs([tmp_path]).runs)


def begin_with(folder: Path, source: str) -> None:
    record = json.loads((folder / "run.json").read_text()) | {"init_from": source}
    (folder / "run.json").write_text(json.dumps(record))


def test_only_the_full_recipe_is_the_papers(tmp_path: Path) -> None:
    paper = config_for("gm", "paper")
    configs = (paper, paper.with_train(steps=9), config_for("gm", "paper", "2x2"))
    for seed, config in enumerate(configs):
        make_run(tmp_path, "gm", seed, budget="paper", config=config)
    runs = sorted(load_runs([tmp_path]).runs, key=lambda run: run.seed)
    assert [run.signature.is_paper_recipe for run in runs] == [True, False, False]


def test_conditions_of_ones_own(tmp_path: Path) -> None:
    make_run(tmp_path, "my-idea", 0, config=config_for("gm", "cpu").with_model(d_node=32))
    (run,) = load_runs([tmp_path]).runs
    assert run.signature.overrides == ("model.d_node=32",)


def test_of_the_same_run_twice_the_later_one_counts(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a", "gm", 0, 0.5)
    shutil.copytree(first, tmp_path / "b")
    record = json.loads((tmp_path / "b" / "run.json").read_text()) | {"started": "2031"}
    (tmp_path / "b" / "run.json").write_text(json.dumps(record))
    found = load_runs([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert [run.path for run in found.runs] == [tmp_path / "b"]
    assert len(found.problems) == 1
    assert found.problems[0].startswith("The same run twice")
    # A finished one counts before an unfinished copy.
    make_run(tmp_path / "c", "gm", 1, 0.5)
    make_run(tmp_path / "d", "gm", 1, None, status="running")
    (run,) = load_runs([tmp_path / "c", tmp_path / "d"]).runs
    assert run.finished


def test_half_a_metrics_line_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 9, "ki')
    assert len(read_folder(folder, folder).evaluations) == 5
    (folder / "metrics.jsonl").unlink()
    assert read_folder(folder, folder).evaluations == []


def titled(**facts: object) -> dict[str, object]:
    """Metrics of a result, the first one with other facts."""
    first = {"title": "boards", "share": True, "higher_is_better": True} | facts
    return {"metrics": {"board_accuracy": first, "cell_accuracy": {"title": "c", "share": True}}}


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("run.json", "{", "damaged"),
        ("run.json", "[]", "object"),
        ("run.json", "{}", "format"),
        ("run.json", '{"format": "graph-machine-run", "version": 1}', "config"),
        ("run.json", {"version": 2}, "version 1"),
        ("run.json", {"seed": "0"}, "seed should be int, got '0'"),
        ("run.json", {"condition": ["gm"]}, "condition"),
        ("run.json", {"budget": None}, "budget"),
        ("run.json", {"started": 5}, "started"),
        ("run.json", {"init_from": 5}, "init_from"),
        ("run.json", {"data": "here"}, "data"),
        ("run.json", {"data": {"identity": "a", "size": "many"}}, "size"),
        ("run.json", {"config": {"train": 3}}, "TrainConfig"),
        ("result.json", "nothing", "damaged"),
        ("result.json", "[" * 100_000, "damaged"),
        ("result.json", "{}", "metrics"),
        ("result.json", {"board_accuracy": "high"}, "board_accuracy"),
        ("result.json", {"board_accuracy": True}, "board_accuracy"),
        ("result.json", {"seconds": []}, "seconds"),
        ("result.json", {"parameters": "5"}, "parameters"),
        ("result.json", {"groups": {"rating": [1]}}, "rating"),
        ("result.json", {"groups": {"rating": {"0.0": 3}}}, "0.0"),
        ("result.json", {"metrics": {"board_accuracy": {"share": True}}}, "title"),
        ("result.json", {"metrics": {"board_accuracy": {"title": "boards"}}}, "share"),
        ("result.json", {"metrics": {"board_accuracy": "boards"}}, "board_accuracy"),
        ("result.json", titled(title=5), "title"),
        ("result.json", titled(share="yes"), "share"),
        ("result.json", titled(higher_is_better=None), "higher_is_better"),
        ("metrics.jsonl", '["eval"]\n', "object"),
        ("metrics.jsonl", '{"kind": "eval", "step": "x"}\n', "step"),
        ("metrics.jsonl", '{"kind": "eval", "step": 1, "seconds": {}}\n', "seconds"),
    ],
)
def test_damage_costs_its_own_run(tmp_path: Path, name: str, change: object, word: str) -> None:
    make_run(tmp_path, "gm", 0)
    bad = make_run(tmp_path, "gm", 1) / name
    if isinstance(change, dict):
        change = json.dumps(json.loads(bad.read_text()) | change)
    bad.write_text(str(change))
    found = load_runs([tmp_path])
    assert [run.seed for run in found.runs] == [0]
    (problem,) = found.problems
    assert word in problem
    assert str(bad.parent) in problem


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="runs"):
        load_runs([tmp_path])
    with pytest.raises(DataError, match="nowhere"):
        load_runs([tmp_path / "nowhere"])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run\.json"):
        load_runs([tmp_path])


def test_a_path_is_said_once(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", 0)
    (file,) = tmp_path.rglob("run.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"imports": ["from_elsewhere"]}))
    with pytest.raises(DataError, match="from_elsewhere") as caught:
        load_runs([tmp_path])
    assert str(caught.value).count(str(tmp_path)) == 1
    file.write_text(json.dumps(record | {"config": {}, "seed": "many"}))
    with pytest.raises(DataError, match="runs") as caught:
        load_runs([file.parent])
    assert str(caught.value).count(str(tmp_path)) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(2):
        make_run(tmp_path / "runs", "gm", seed, 0.9 + seed / 30)
        make_run(tmp_path / "runs", "transformer", seed, 0.7)
    make_run(tmp_path / "runs", "gm", 2, None, status="interrupted")
    return tmp_path / "runs"


def test_a_study_says_what_its_folders_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "packed" / f"cpu{STUDY}"
    assert command(["report", str(folder), "--pack", str(study)]) == 0
    assert f"Packed 5 runs into {study}" in capsys.readouterr().err
    before, after = load_runs([folder]), load_runs([study.parent])
    assert json_text(build_report(after)) == json_text(build_report(before))
    for axis in ("steps", "seconds", "flops"):
        curves = [[eval_curve(run, axis) for run in found.runs] for found in (before, after)]
        assert curves[0] == curves[1]
    assert [run.path for run in after.runs] == [
        study / run.path.relative_to(folder) for run in before.runs
    ]
    assert "steps_per_second" not in study.read_text()  # training lines stay behind


def test_a_study_can_be_packed_again_and_names_no_folder(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / f"a{STUDY}"
    write_study(study, load_runs([folder]).runs)
    first = study.read_bytes()
    make_run(tmp_path / "more", "gm-rope", 0, source=str(tmp_path / "data" / "mine.csv"))
    command(["report", str(study), str(tmp_path / "more"), "--pack", str(study)])
    assert study.read_bytes().startswith(first)
    assert str(tmp_path) not in study.read_text()
    sources = [run.info.data.source for run in load_runs([study]).runs]
    assert sources == [*["generated"] * 5, "mine.csv"]
    with pytest.raises(DataError, match="study"):
        command(["report", str(folder), "--pack", str(tmp_path / "a.json")])


def test_damage_costs_the_runs_that_it_hits(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / f"a{STUDY}"
    write_study(study, load_runs([folder]).runs)
    lines = study.read_text().splitlines()
    whole = json.loads(lines[3])
    lines[1] = lines[1][:50]
    lines[2] = json.dumps(json.loads(lines[2]) | {"evaluations": 3})
    lines[3] = json.dumps(whole | {"run": whole["run"] | {"seed": None}})
    study.write_text("\n".join(lines))
    found = load_runs([study])
    assert len(found.runs) == 2
    for number, part in enumerate(
        ("Line 2 is damaged", "Line 3 does not hold a run", "seed should be int")
    ):
        assert part in found.problems[number]
        assert str(study) in found.problems[number]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The header is damaged"),
        ("{}", "Not a study of format graph-machine-study"),
        ('{"format": "graph-machine-study", "version": 2}', "version 1"),
    ],
)
def test_what_is_no_study(tmp_path: Path, text: str, message: str) -> None:
    study = tmp_path / f"a{STUDY}"
    study.write_text(text)
    with pytest.raises(DataError, match=message):
        load_runs([study])
