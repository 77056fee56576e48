"""The whole path on a tiny budget, as a user walks it."""

import json
from pathlib import Path

import pytest

from graph_machine.lab.cli import run
from graph_machine.lab.training.trainer import Trainer
from support.runs import write_puzzles


class Crash(Exception):
    """The machine goes away."""


def test_train_crash_resume_evaluate_solve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(write_puzzles(tmp_path / "puzzles.store"))
    command = ["train", "gm", "--budget", "smoke", "--data", data, "--steps", "8"]
    real = Trainer.step

    def crash(self: Trainer, step: int, **options: bool) -> dict[str, float]:
        if step == 6:
            raise Crash
        return real(self, step, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", crash)
        with pytest.raises(Crash):
            run(command)
    folder = "runs/smoke/4x4/gm/seed-0"
    state = json.loads((tmp_path / folder / "checkpoints/latest/state.json").read_text())
    assert state["step"] == 5
    assert run([*command, "--resume"]) == 0
    capsys.readouterr()
    assert run(["evaluate", folder, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 10
    assert run(["solve", folder, "." * 16]) in (0, 1)
