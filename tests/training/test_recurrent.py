"""Training with rounds: schedules, losses, averaged weights, warm starts, frozen parts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run as command
from graph_machine.lab.conditions import config_for
from graph_machine.lab.config import TaskConfig, TrainConfig
from graph_machine.lab.tasks.sudoku.augment import with_clues
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import train
from graph_machine.lab.training.cost import expected_memory
from graph_machine.lab.training.flops import core_flops, flops_per_step
from graph_machine.lab.training.schedule import (
    check_schedules,
    round_weights,
    rounds_range,
    training_rounds,
)
from graph_machine.lab.training.trainer import Trainer
from support.runs import crash, puzzle_store, recurrent, same_bits, tiny, weights_of


def test_rounds_grow_and_vary_as_functions_of_seed_and_step() -> None:
    config = recurrent(steps=10)
    ranges = [rounds_range(step, config) for step in range(10)]
    assert ranges[0] == range(1, 3)
    assert ranges[5] == ranges[9] == range(1, 5)
    first = [training_rounds(step, 0, config) for step in range(10)]
    assert first == [training_rounds(step, 0, config) for step in range(10)]
    assert first != [training_rounds(step, 1, config) for step in range(10)]
    assert all(rounds in choices for rounds, choices in zip(first, ranges))


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("all", [1 / 3] * 3), ("last", [0, 0, 1]), ("growing", [1 / 6, 2 / 6, 3 / 6])],
)
def test_losses_of_rounds_are_weighed(kind: Any, weights: list[float]) -> None:
    assert round_weights(3, TrainConfig(round_loss=kind)) == pytest.approx(weights)


def test_clues_are_put_back_and_shrink() -> None:
    config = recurrent().task
    for end, most in ((0, [20, 10, 0, 0]), (4, [20, 12, 4, 4])):
        task = SudokuTask(config.replace(clues_start=20, clues_end=end, clues_ramp=0.5))
        assert [task.clues_put_back(share) for share in (0.0, 0.25, 0.5, 1.0)] == most
    old = {name: value for name, value in config.to_dict().items() if name != "clues_end"}
    assert TaskConfig.from_dict(old) == config
    solutions = np.tile(np.arange(1, 10, dtype=np.uint8), (50, 1))
    puzzles = np.where(np.arange(9) < 3, solutions, 0).astype(np.uint8)
    filled = with_clues(puzzles, solutions, 4, key=7)
    added = (filled > 0).sum(axis=1) - 3
    assert added.min() == 0
    assert added.max() == 4
    assert ((filled == solutions) | (filled == 0)).all()
    assert (with_clues(puzzles, solutions, 4, key=7) == filled).all()


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path, puzzles: str) -> None:
    config = recurrent(save_every=2)
    train(config, out=tmp_path / "whole", data=puzzles, progress="none")
    crash(3, config=config, out=tmp_path / "cut", data=puzzles)
    train(config, out=tmp_path / "cut", data=puzzles, progress="none", resume=True)
    assert same_bits(tmp_path / "whole", tmp_path / "cut")


def test_frozen_parts_do_not_move_and_others_do(tmp_path: Path, puzzles: str) -> None:
    start = tmp_path / "start"
    train(recurrent(), out=start, data=puzzles, progress="none")
    config = recurrent(freeze="nodes, stack.layers.0", ema=0.0)
    out = tmp_path / "out"
    result = train(config, out=out, data=puzzles, progress="none", init_from=str(start))
    assert result.metrics["init_from"] == str(start)
    before, after = weights_of(start), weights_of(out)
    for name, value in after.items():
        frozen = name.startswith(("nodes.", "stack.layers.0."))
        assert torch.equal(value, before[name]) == frozen, name


def test_mistakes_are_one_line_each(tmp_path: Path, puzzles: str) -> None:
    with pytest.raises(ConfigError, match="'stak'"):
        train(recurrent(freeze="stak"), out=tmp_path / "a", data=puzzles, progress="none")
    everything = "nodes,edges,stack,core,norm,readout"
    with pytest.raises(ConfigError, match="nothing"):
        train(recurrent(freeze=everything), out=tmp_path / "b", data=puzzles, progress="none")
    for name in ("rounds_min", "rounds_start", "grad_rounds"):
        with pytest.raises(ConfigError, match=f"train.{name} = 9 should be at most model.rounds"):
            check_schedules(recurrent(**{name: 9}))
    core = ({"rounds_min": 1}, {"round_loss": "last"}, {"round_loss": "growing"})
    for settings in (*core, {"test_rounds": "2,4"}):
        with pytest.raises(ConfigError, match="core"):
            check_schedules(tiny().with_train(**settings))
    for numbers in ("0,4", "4,x"):
        with pytest.raises(ConfigError, match=r"train\.test_rounds"):
            recurrent(test_rounds=numbers)
    with pytest.raises(ConfigError, match="rounds_min = 3"):
        check_schedules(recurrent(rounds_min=3))
    for change, value in (("rounds_ramp", 1.5), ("ema", 1.0), ("clip_norm", 0.0), ("beta1", -0.1)):
        with pytest.raises(ConfigError, match=f"{change} .*{value}"):
            recurrent(**{change: value})
    for change, value in (("clues_ramp", 0.0), ("clues_end", -1)):
        with pytest.raises(ConfigError, match=f"{change} .*{value}"):
            recurrent().with_task(**{change: value})


def test_the_final_model_is_tested_by_rounds(tmp_path: Path, puzzles: str) -> None:
    config = recurrent(test_rounds="1,4,9")
    found = train(config, out=tmp_path / "run", data=puzzles, progress="none").metrics
    by_rounds = found["groups"]["rounds"]
    assert [*by_rounds] == ["1", "4", "9"]
    as_trained = {name: found[name] for name in ("board_accuracy", "cell_accuracy")}
    assert {name: by_rounds["4"][name] for name in as_trained} == as_trained
    assert by_rounds["9"]["loss"] != by_rounds["4"]["loss"]


def test_without_its_input_a_core_learns_through_all_rounds(tmp_path: Path, puzzles: str) -> None:
    config = recurrent(grad_rounds=2).with_model(core_input="none")
    with pytest.raises(ConfigError, match="core_input=add"):
        train(config, out=tmp_path / "run", data=puzzles, progress="none")
    for rounds in (None, 4):
        check_schedules(config.with_train(grad_rounds=rounds))


def test_clues_fit_the_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path / "cache"))
    words = ["train", "gm", "--budget", "smoke", "--out", str(tmp_path / "run"), "--set"]
    for setting, line in (
        ("task.clues_start=1000", "clues_start = 1000 should be at most the 16 cells of a board"),
        ("task.clues_end=3", r"clues_end = 3 should be at most task\.clues_start = 0"),
    ):
        with pytest.raises(ConfigError, match=line):
            command([*words, setting])
    assert not list(tmp_path.iterdir())  # refused before puzzles are generated
    # One by one they may disagree.
    settings = ["task.clues_end=3", "task.clues_start=30", "task.box=3x3"]
    check_schedules(config_for("gm", "smoke", settings=settings))


def test_recomputing_reaches_the_core(puzzles: str) -> None:
    device = torch.device("cpu")
    task = SudokuTask(recurrent().task).use(puzzle_store(40))
    gradients, kept = [], []
    for recompute in (False, True):
        every = {"grad_rounds": None, "rounds_start": None, "rounds_min": None}
        config = recurrent(checkpoint_layers=recompute, **every)
        trainer = Trainer(config, task, seed=0, device=device)
        trainer.loss_of_step(0).backward()
        gradients.append({n: p.grad for n, p in trainer.model.named_parameters()})
        kept.append(expected_memory(config, task, seed=0, device=device))
    for name, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], value)
    assert kept[1] < 0.25 * kept[0]  # 0.4 if only the layers before the core are recomputed


def test_operations_follow_the_rounds(puzzles: str) -> None:
    from graph_machine.lab.tasks.base import task_of

    fixed = recurrent(rounds_min=None, rounds_start=None, grad_rounds=None)
    once, free, learning = core_flops(fixed.model, task_of(fixed.task).spec)
    assert 2 * free < learning < 4 * free
    assert flops_per_step(fixed) == fixed.train.batch_size * (once + 4 * learning)
    cut = fixed.with_train(grad_rounds=1)
    assert flops_per_step(cut) == fixed.train.batch_size * (once + learning + 3 * free)
