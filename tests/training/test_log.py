"""Where metrics go: people, JSON lines, TensorBoard, Weights & Biases."""

import json
import sys
from pathlib import Path

import pytest

from graph_machine.errors import MissingExtraError
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.training import RunFolder, train
from graph_machine.lab.training.log import (
    Bar,
    JsonLines,
    Plain,
    TensorBoard,
    WeightsAndBiases,
    progress_sink,
)
from support.runs import tiny

METRICS = task_of(SudokuConfig()).metrics
TRAIN = {"step": 1, "kind": "train", "loss": 1.0, "cell_accuracy": 0.5, "board_accuracy": 0.25}
TRAIN |= {"lr": 1e-3, "steps_per_second": 2.0}
EVAL = {"step": 2, "kind": "eval", "loss": 1.0, "cell_accuracy": 0.5, "board_accuracy": 0.25}


def test_progress_by_name_or_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(progress_sink("auto", METRICS), Plain)  # a test has no terminal
    assert progress_sink("none", METRICS) is None
    seen = []
    sink = progress_sink(seen.append, METRICS)
    assert sink is not None
    sink.write(TRAIN)
    assert seen == [TRAIN]
    plain = Plain(METRICS)
    plain.start(10, 4, "gm")
    plain.write(EVAL)
    assert capsys.readouterr().err.splitlines()[0] == "gm, from step 4"


def test_the_bar_shows_loss_accuracy_and_speed() -> None:
    bar = Bar(METRICS)
    with bar:
        bar.start(10, 0, "gm")
        bar.write(TRAIN)
        bar.write(EVAL)
        bar.tick(2)
    figures = bar.progress.tasks[0].fields["figures"]
    assert "loss 1.000 boards 25.0% lr 1.0e-03 2.0/s" in figures
    assert "eval 25.0%" in figures


def test_metric_lines_are_cut_at_the_checkpoint(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.truncate_metrics(0) is None  # nothing there yet
    assert "missing" in str(run.truncate_metrics(3))
    with JsonLines(run.metrics) as sink:
        for step in (1, 2, 3, 4):
            sink.write({"step": step})
    with open(run.metrics, "a") as file:
        file.write('{"step": 3, "lo')
    run.truncate_metrics(3)
    found = [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]
    assert found == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_and_wandb_offline(
    out: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    sinks = [TensorBoard(out / "tensorboard"), WeightsAndBiases(out, "tiny", {})]
    train(tiny(steps=2), out=out, data=puzzles, sinks=sinks, progress="none")
    assert list((out / "tensorboard").glob("events.*"))
    assert list((out / "wandb").glob("offline-run-*"))


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("torch.utils.tensorboard", lambda p: TensorBoard(p)),
        ("wandb", lambda p: WeightsAndBiases(p, "", {})),
    ],
)
def test_a_missing_logger_names_its_extra(
    package: str, make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"graph-machine\[log\]"):
        make(tmp_path)  # type: ignore[operator]


def test_damaged_metrics_lose_their_bad_lines_alone(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    good = [json.dumps({"step": step, "kind": "train"}).encode() for step in range(1, 11)]
    damaged = [good[0], b'{"step": \xff', *good[2:5], b"[" * 100_000, b'{"step": "7"}', *good[7:]]
    content = b"\n".join(damaged) + b"\n"
    run.metrics.write_bytes(content)
    line = run.truncate_metrics(9)
    assert line is not None
    assert line.startswith("3 of 10 lines of metrics.jsonl could not be read")
    steps = [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]
    assert steps == [1, 3, 4, 5, 8, 9]
    assert (tmp_path / "metrics.damaged-0.jsonl").read_bytes() == content
    assert run.truncate_metrics(9) is None
    assert len(list(tmp_path.iterdir())) == 2
