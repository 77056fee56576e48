"""Study files: many runs in one file, as good as their folders."""

import json
from pathlib import Path

import pytest

from graph_machine.cli import run as command
from graph_machine.errors import DataError
from graph_machine.reports.curves import eval_curve
from graph_machine.reports.render import json_text
from graph_machine.reports.runs import read_runs
from graph_machine.reports.storage import STUDY, write_study
from graph_machine.reports.summary import build_report
from support.run_folders import make_run


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
    before, after = read_runs([folder]), read_runs([study.parent])
    assert json_text(build_report(after)) == json_text(build_report(before))
    for axis in ("steps", "seconds", "flops"):
        curves = [[eval_curve(run, axis) for run in found.runs] for found in (before, after)]
        assert curves[0] == curves[1]
    assert [run.path for run in after.runs] == [
        study / run.path.relative_to(folder) for run in before.runs
    ]
    assert "steps_per_second" not in study.read_text()  # training lines stay behind


def test_a_study_can_be_given_by_name_and_packed_again(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / f"a{STUDY}"
    write_study(study, [run.stored for run in read_runs([folder]).runs])
    first = study.read_bytes()
    make_run(tmp_path / "more", "gm-rope", 0)
    command(["report", str(study), str(tmp_path / "more"), "--pack", str(study)])
    assert study.read_bytes().startswith(first)
    assert len(read_runs([study]).runs) == 6


def test_damage_costs_the_runs_that_it_hits(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / f"a{STUDY}"
    write_study(study, [run.stored for run in read_runs([folder]).runs])
    lines = study.read_text().splitlines()
    whole = json.loads(lines[3])
    lines[1] = lines[1][:50]
    lines[2] = json.dumps(json.loads(lines[2]) | {"evaluations": 3})
    lines[3] = json.dumps(whole | {"run": whole["run"] | {"seed": None}})
    study.write_text("\n".join(lines))
    found = read_runs([study])
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
        read_runs([study])


def test_the_name_of_a_study(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in \.study\.jsonl, got 'a\.json'"):
        command(["report", str(folder), "--pack", str(tmp_path / "a.json")])
