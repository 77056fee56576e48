"""Tasks beyond Sudoku: budgets of their own, conditions that train, tables that can be swept."""

from pathlib import Path

import pytest
import torch

from graph_machine.errors import ConfigError
from graph_machine.lab.conditions import CONDITIONS, FAMILIES, TABLES, base_for, config_for
from graph_machine.lab.conditions.budgets import training_command
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.sweeps.grid import choose_conditions, make_grid
from graph_machine.lab.tasks.base import task_of
from graph_machine.models import GraphMachine

CLRS = Path(__file__).parent.parent / "assets" / "clrs"  # a sample of the benchmark's files
OTHERS = [name for name, item in CONDITIONS.items() if item.task != "sudoku"]


@pytest.mark.parametrize("name", OTHERS)
def test_every_condition_trains_on_its_own_task(name: str) -> None:
    config = config_for(name, "smoke")
    assert config.task.name == CONDITIONS[name].task
    assert config.model.qk_norm
    assert ExperimentConfig.from_json(config.to_json()) == config
    data = str(CLRS) if config.task.name == "clrs" else None
    task = task_of(config.task).few(40).open(data)
    model = GraphMachine(config.model.replace(init="torch"), task.spec)
    batch = task.batch(0, 4, seed=0)
    task.losses(model(**batch.inputs).logits, batch).mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("task", [name for name in FAMILIES if name in TABLES])
def test_families_have_budgets_and_a_table(task: str) -> None:
    assert CONDITIONS[FAMILIES[task].condition].task == task
    assert {"paper", "cpu", "smoke"} <= set(FAMILIES[task].bases)
    for budget in FAMILIES[task].bases:
        assert base_for(budget, task=task).task.name == task
    jobs = make_grid(choose_conditions([task]), [0, 1], budget="smoke")
    assert len(jobs) == 2 * len(TABLES[task].rows)
    assert {job.config.task.name for job in jobs} == {task}


def test_any_condition_on_another_task() -> None:
    config = config_for("gm-rope", "smoke", task="jigsaw")
    assert (config.task.name, config.model.position) == ("jigsaw", "rotary")
    with pytest.raises(ConfigError, match="--box"):
        config_for("gm", "cpu", "2x3", task="maze")
    for condition, task, words in (
        ("jigsaw-gm", None, "train jigsaw-gm --budget cpu --seed 1"),
        ("gm", "maze", "train gm --budget cpu --task maze --seed 1"),
    ):
        config = config_for(condition, "cpu", task=task)
        run = {"config": config.to_dict(), "condition": condition, "budget": "cpu", "seed": 1}
        command = training_command(run | {"data": {"source": "generated"}})
        assert command == f"graph-machine {words}"
