"""A run from the outside: what it leaves, how it resumes, and how it refuses."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_machine import GraphMachine
from graph_machine.errors import CheckpointError, ConfigError, DataError, TrainingError
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import Interrupted, RunFolder, default_out, train
from graph_machine.lab.training.flops import flops_per_step
from graph_machine.lab.training.trainer import Trainer
from support.runs import crash, puzzle_store, same_bits, tiny, weights_of, write_puzzles

# Timing is the only thing in a metric line that may differ between equal runs.
TIMES = ("seconds", "steps_per_second")


def lines(run: Path) -> list[dict[str, object]]:
    text = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(t).items() if k not in TIMES} for t in text]


def test_a_run_leaves_what_the_contract_says(out: Path, puzzles: str) -> None:
    result = train(tiny(), out=out, data=puzzles, condition="gm", budget="tiny", progress="none")
    run = RunFolder(out)
    info = run.info()
    assert info.status == "finished"
    assert info.config == tiny().to_dict()
    assert info.data.identity == puzzle_store().identity
    assert (info.condition, info.budget, info.seed) == ("gm", "tiny", 0)
    assert run.result() == result.record
    assert result.metrics["test_examples"] == 10
    assert result.metrics["label"] == "4x4"
    assert result.metrics["flops_per_step"] == flops_per_step(tiny())
    assert set(result.metrics["groups"]["rating"]) <= {"0.0", "1.0-2.0", "2.1-4.0", "4.1-8.5"}
    assert sum(p["examples"] for p in result.metrics["groups"]["clues"].values()) == 10
    assert [(r["kind"], r["step"]) for r in lines(out)] == [
        ("train", 2),
        ("eval", 3),
        ("train", 4),
        ("train", 6),
        ("eval", 6),
    ]
    model = GraphMachine.from_pretrained(out)
    assert model.num_parameters == result.metrics["parameters"]
    assert torch.equal(model.readout.weight, weights_of(out)["readout.weight"])
    for name in ("latest", "best"):
        GraphMachine.from_pretrained(out / "checkpoints" / name)
    again = train(tiny(), out=out, data=puzzles, condition="gm", resume=True, progress="none")
    assert again.metrics == result.metrics


@pytest.mark.parametrize("condition", ["gm", "gm-top-4-tau-0.1", "gm muon"])
def test_resuming_gives_the_same_bits_wherever_a_run_stopped(
    condition: str, tmp_path: Path, puzzles: str
) -> None:
    # Gumbel noise (tau) is the random part of a step. Saving and logging are out of step.
    condition, _, optimizer = condition.partition(" ")
    config = tiny(condition, save_every=2, log_every=3, optimizer=optimizer or "adam")
    whole = tmp_path / "whole"
    options: dict[str, Any] = {"config": config, "data": puzzles, "seed": 3}
    train(out=whole, progress="none", **options)
    again = tmp_path / "again"
    train(out=again, progress="none", **options)
    assert same_bits(whole, again)
    parts = tmp_path / "parts"
    for step in (1, 3, 5):
        crash(step, out=parts, resume=True, **options)
        assert RunFolder(parts).info().status == "failed"
    train(out=parts, resume=True, progress="none", **options)
    assert same_bits(whole, parts)
    assert lines(whole) == lines(parts)


def test_seeds_give_different_runs(tmp_path: Path, puzzles: str) -> None:
    for seed in (0, 1):
        train(tiny(steps=1), out=tmp_path / str(seed), data=puzzles, seed=seed, progress="none")
    assert not same_bits(tmp_path / "0", tmp_path / "1")


def test_accumulation_equals_the_whole_batch(tmp_path: Path, puzzles: str) -> None:
    for parts in (1, 4):
        config = tiny(accumulate=parts, steps=3)
        train(config, out=tmp_path / str(parts), data=puzzles, progress="none")
    one, four = weights_of(tmp_path / "1"), weights_of(tmp_path / "4")
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=1e-3, atol=1e-4)
    first, second = lines(tmp_path / "1"), lines(tmp_path / "4")
    for ours, theirs in zip(first, second, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        if ours["kind"] == "train":
            entropy = theirs["entropy_referral_edge"]
            assert ours["entropy_referral_edge"] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize(
    "settings",
    [{"checkpoint_layers": True}, {"backend": "reference"}, {"precision": "bfloat16"}],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_how_a_run_is_carried_out(
    settings: dict[str, object], tmp_path: Path, puzzles: str
) -> None:
    plain = train(tiny(), out=tmp_path / "plain", data=puzzles, progress="none")
    other = train(tiny("gm", **settings), out=tmp_path / "other", data=puzzles, progress="none")
    tolerance = 5e-2 if "precision" in settings else 1e-4
    assert other.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=tolerance)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_goes_on(
    number: signal.Signals, tmp_path: Path, puzzles: str
) -> None:
    def interrupt(record: dict[str, object]) -> None:
        if record["step"] == 2:
            signal.raise_signal(number)

    # save_every is past the end: only the signal saves.
    config = tiny(save_every=100)
    run, whole = tmp_path / "run", tmp_path / "whole"
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as stopped:
        train(config, out=run, data=puzzles, progress=interrupt)
    assert (stopped.value.step, stopped.value.signal_number) == (3, number)
    assert signal.getsignal(number) == before
    assert RunFolder(run).info().status == "interrupted"
    train(config, out=run, data=puzzles, progress="none", resume=True)
    train(config, out=whole, data=puzzles, progress="none")
    assert same_bits(run, whole)


def test_a_run_is_not_overwritten_and_not_joined(out: Path, puzzles: str) -> None:
    train(tiny(steps=1), out=out, data=puzzles, progress="none")
    with pytest.raises(CheckpointError, match="already"):
        train(tiny(steps=1), out=out, data=puzzles, progress="none")
    with RunFolder(out).locked(), pytest.raises(CheckpointError, match="Another process"):
        train(tiny(steps=1), out=out, data=puzzles, progress="none", resume=True)


def test_resume_refuses_another_config_seed_or_data(
    out: Path, tmp_path: Path, puzzles: str
) -> None:
    train(tiny(), out=out, data=puzzles, progress="none")
    files = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    options: dict[str, Any] = {"out": out, "resume": True, "progress": "none"}
    with pytest.raises(CheckpointError, match=r"train\.steps"):
        train(tiny(steps=7), data=puzzles, **options)
    with pytest.raises(CheckpointError, match="seed"):
        train(tiny(), data=puzzles, seed=1, **options)
    other = str(write_puzzles(tmp_path / "other.store", seed=1))
    with pytest.raises(CheckpointError, match="data was"):
        train(tiny(), data=other, **options)
    with pytest.raises(DataError, match="2x3"):
        train(tiny().with_task(box="2x3"), data=puzzles, **options)
    assert files == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize("where", ["layers.1.edge.0", "readout", "parameter"])
def test_a_loss_that_is_no_number_is_traced(
    where: str, out: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.step

    @torch.no_grad()
    def spoil(self: Trainer, number: int, **options: bool) -> dict[str, float]:
        if number == 3:
            if where == "parameter":
                self.model.norm.weight.fill_(float("nan"))
            elif where == "readout":
                self.model.readout.weight.fill_(3e38)
            else:
                # Finite weights, infinite products.
                self.model.get_parameter("stack.layers.1.edge.0.node_norm.weight").fill_(1e38)
        with torch.enable_grad():
            return real(self, number, **options)

    monkeypatch.setattr(Trainer, "step", spoil)
    with pytest.raises(TrainingError, match="at step 3: ") as failure:
        train(tiny(), out=out, data=puzzles, progress="none")
    expected = {
        "parameter": "the parameter norm.weight is not finite",
        "readout": "logits is the first tensor that is not finite",
        "layers.1.edge.0": "layers.1.edge.0.",
    }
    assert expected[where] in str(failure.value)
    run = RunFolder(out).info()
    assert run.status == "failed"
    assert "at step 3" in str(run.error)
    assert (
        json.loads((out / "checkpoints" / "latest" / "state.json").read_text())["step"] == 3
    )  # saved with its evaluation


def test_an_exploding_loss_stops(out: Path, puzzles: str) -> None:
    with pytest.raises(TrainingError, match=r"at step \d+"):
        train(tiny(peak_lr=1e6, steps=50), out=out, data=puzzles, progress="none")


def test_default_folder_and_given_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = SudokuTask(tiny().task).use(puzzle_store())
    result = train(tiny(steps=1), task=task, condition="gm", budget="tiny", progress="none")
    assert result.folder == Path("runs/tiny/4x4/gm/seed-0")
    assert result.folder == default_out(tiny(), "gm", "tiny", 0)
    assert 0 <= result.score <= result.metrics["cell_accuracy"] <= 1


def test_an_unknown_device_is_refused(out: Path, puzzles: str) -> None:
    with pytest.raises(ConfigError, match="used"):
        train(tiny(), out=out, data=puzzles, device="nowhere")
    assert not out.exists()


def test_cpu_seconds_go_on_where_they_stopped(out: Path, puzzles: str) -> None:
    train(tiny(steps=2), data=puzzles, out=out, progress="none")
    state = json.loads((out / "checkpoints" / "latest" / "state.json").read_text())
    assert state["cpu_seconds"] > 0
    (out / "result.json").unlink()
    again = train(tiny(steps=2), data=puzzles, out=out, progress="none", resume=True)
    assert again.metrics["cpu_seconds"] > state["cpu_seconds"]
