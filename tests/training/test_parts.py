"""The small parts of training: schedule, losses, seeds, devices, optimiser state, intervals."""

import math
import signal
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graph_machine.errors import CheckpointError, ConfigError, TrainingError
from graph_machine.lab.cli import run as command
from graph_machine.lab.config import SudokuConfig, TrainConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import answer_losses, wilson
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import cost, train
from graph_machine.lab.training.devices import (
    SAME_WISH,
    Processes,
    StopRequest,
    autocast,
    precision_of,
)
from graph_machine.lab.training.log import Plain, duration, projection
from graph_machine.lab.training.optim import Optimizer
from graph_machine.lab.training.schedule import (
    learning_rate,
    own_random_state,
    step_seed,
)
from graph_machine.lab.training.trainer import Trainer
from graph_machine.machine import choose_device
from support.runs import puzzle_store, tiny
from tolerances import assert_close

CPU = torch.device("cpu")


def test_learning_rate_warms_up_then_falls_to_a_tenth() -> None:
    config = TrainConfig(steps=1000, peak_lr=1e-3)
    rates = [learning_rate(step, config) for step in range(1000)]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[9] == pytest.approx(1e-3) == max(rates)
    assert rates[-1] == pytest.approx(1e-4)
    assert all(later <= earlier for earlier, later in pairwise(rates[10:]))
    assert learning_rate(0, TrainConfig(steps=1)) > 0
    assert learning_rate(0, TrainConfig(steps=10, warmup=0.0)) == pytest.approx(1e-3)


def test_entropy_weight_is_annealed_to_zero() -> None:
    config = tiny().with_train(steps=10)
    task = SudokuTask(config.task).use(puzzle_store(40))
    trainer = Trainer(config, task, seed=0, device=CPU)
    batch = trainer._batch(0)
    for step, weight in ((0, 1e-3), (5, 5e-4), (10, 0.0)):
        loss, sums, _ = trainer._loss(batch, step)
        names = [name for name in sums if name.startswith("entropy_")]
        assert len(names) == (4 if weight else 0)
        terms = sum(float(sums[name]) for name in names) / len(batch)
        assert loss.item() == pytest.approx(float(sums["loss"]) / len(batch) + weight * terms)
    # Two processes have half of the batch each.
    parts = []
    for rank in (0, 1):
        trainer.processes = Processes(rank, 2)
        parts.append(trainer._batch(0).answers)
    assert torch.equal(torch.cat(parts), batch.answers)


def test_loss_is_a_mean_per_puzzle_over_blanks() -> None:
    logits, answers = torch.randn(2, 3, 4), torch.tensor([[0, 1, 2], [3, -1, 0]])
    where = torch.tensor([[True, True, True], [True, False, False]])
    logs = logits.log_softmax(-1)
    first = -(logs[0, 0, 0] + logs[0, 1, 1] + logs[0, 2, 2]) / 3
    assert_close(answer_losses(logits, answers, where), torch.stack([first, -logs[1, 0, 3]]))
    nothing = torch.zeros_like(where)
    assert answer_losses(logits, answers, nothing).tolist() == [0, 0]


def test_seeds_differ_by_step_rank_and_seed_and_leave_the_caller_alone() -> None:
    seeds = {step_seed(a, b, c) for a in range(4) for b in range(100) for c in range(3)}
    assert len(seeds) == 1200
    before = torch.get_rng_state()
    with own_random_state(CPU):
        torch.manual_seed(1)
        torch.rand(3)
    assert torch.equal(before, torch.get_rng_state())


def test_devices_and_precision() -> None:
    assert choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match="'nonsense'"):
        choose_device("nonsense")
    assert precision_of(TrainConfig(), CPU) == "float32"
    with autocast("bfloat16", CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_optimizer_state_round_trip_and_misfit(name: str) -> None:
    def model() -> torch.nn.Linear:
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2)

    def step(model: torch.nn.Linear, optimizer: Optimizer) -> None:
        model.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step(1e-2)

    decay = 0.0 if name == "adam" else 0.1
    config = TrainConfig().replace(optimizer=name, weight_decay=decay)
    one, two = model(), model()
    first, second = (Optimizer(m, config) for m in (one, two))
    assert first.tensors() == {}
    step(one, first)
    assert ("momentum_buffer.weight" in first.tensors()) == (name == "muon")
    two.load_state_dict(one.state_dict())
    second.load(first.tensors(), "here")
    step(one, first)
    step(two, second)
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)
    with pytest.raises(CheckpointError, match="fit"):
        second.load({"step.other": torch.zeros(1)}, "here")


def test_weight_decay_shrinks_weights_and_adam_has_none() -> None:
    layer = torch.nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    optimizer = Optimizer(layer, TrainConfig(optimizer="adamw", weight_decay=0.5))
    layer(torch.zeros(1, 3)).sum().backward()
    optimizer.step(0.1)
    assert_close(layer.weight, before * 0.95)
    with pytest.raises(ConfigError, match="weight_decay"):
        TrainConfig(weight_decay=0.1)


@pytest.mark.parametrize(
    ("loss", "norm", "bad"),
    [(1.0, 1.0, False), (math.nan, 1.0, True), (1.0, math.inf, True), (200.0, 1.0, True)],
)
def test_what_counts_as_a_bad_loss(loss: float, norm: float, bad: bool) -> None:
    task = SudokuTask(tiny().task).use(puzzle_store(40))
    trainer = Trainer(tiny(), task, seed=0, device=CPU)
    batch, stats = task.batch(0, 8, 0), {"loss": loss, "examples": 1.0, "grad_norm": norm}
    with pytest.raises(TrainingError, match="step 0") if bad else nullcontext():
        trainer._check(0, stats, batch)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962), (0, 0, 0.0, 1.0)],
)
def test_wilson_interval(right: int, total: int, low: float, high: float) -> None:
    assert wilson(right, total) == pytest.approx((low, high), abs=1e-4)


def test_processes_share_a_batch_or_say_why_not() -> None:
    with pytest.raises(ConfigError, match="3 x 1"):
        Processes(0, 3).check(tiny().train)


def test_a_signal_that_is_passed_on_at_once_is_the_same_wish() -> None:
    with StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert request.signal_number == signal.SIGINT
        request._asked -= 2 * SAME_WISH
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert (duration(63), duration(3723)) == ("1:03", "1:02:03")
    record = {"step": 5, "kind": "train", "loss": 1.0, "cell_accuracy": 0.5, "board_accuracy": 0.1}
    sink = Plain(task_of(SudokuConfig()).metrics)
    sink.start(10, 0, "mine")
    sink.write(record | {"lr": 1e-3, "steps_per_second": 2.0})
    title, line = capsys.readouterr().err.splitlines()
    assert title == "mine"
    assert line.startswith("train  5/10  loss 1.0000  boards  10.0%")
    assert line.endswith("left 0:02")


@pytest.mark.usefixtures("unchecked")
def test_progress_is_a_word_or_a_function(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nope'"):
        train(tiny(), out=tmp_path / "run", progress="nope")  # pyrefly: ignore[bad-argument-type]
    assert not (tmp_path / "run").exists()


def test_the_end_of_a_run_is_projected() -> None:
    text = projection(100_000, 0.5, 99_994)
    assert text.startswith("100,000 steps at 0.5 s per step: 13:53:17 left")


def test_the_paper_size_on_a_cpu_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="--budget"):
        command(["train", "gm", "--device", "cpu"])


@pytest.mark.parametrize(
    ("seconds", "recorded", "expected"),
    [({1: 1.0, 4: 2.0}, None, 1), ({1: 2.0, 4: 1.0}, None, 4), ({}, 1, 1), ({}, 9, 4)],
)
def test_a_run_takes_the_faster_number_of_threads(
    seconds: dict[int, float],
    recorded: int | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = [4]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: threads.__setitem__(0, number))
    measure = lambda *args, **options: SimpleNamespace(seconds_per_step=seconds[threads[0]])  # noqa: E731
    monkeypatch.setattr(cost, "measure_cost", measure)
    config, task = tiny(steps=1000), task_of(tiny().task)
    with cost.best_threads(config, task, seed=0, device=CPU, recorded=recorded):
        assert threads == [expected]
    assert threads == [4]
