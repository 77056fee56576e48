"""`graph-machine stats`."""

import json
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.models import GraphMachine, save_model
from support.recordings import board_spec
from support.runs import write_puzzles


def test_stats(tmp_path: Path, out_of: OutOf) -> None:
    command = ["stats", "handmade:2x2", "--limit", "4", "--detect", "4", "--out", str(tmp_path)]
    printed = out_of(command)
    assert "| *GM (paper)* | 15.374 |" in printed
    assert "4x4 board, 6 layers, built by hand" in printed
    text = (tmp_path / "statistics.md").read_text()
    # The hand-built GM has its boxes after layer 1 and its rows and columns after layer 2.
    assert "box 1.00 | row 1.00 | column 1.00" in text
    data = json.loads((tmp_path / "statistics.json").read_text())
    assert data["conditions"][0]["puzzles"] == 4
    for name in ("by-layer.pdf", "by-layer.png", "reach.pdf", "reach.png"):
        assert (tmp_path / name).stat().st_size > 1000
    assert "Regions" not in out_of(["stats", "handmade:2x2", "--limit", "2", "--detect", "0"])


def test_rounds_of_a_core(tmp_path: Path, out_of: OutOf) -> None:
    task = SudokuConfig(box="2x2", puzzles=100)
    config = ModelConfig(num_layers=1, core_layers=1, rounds=2)
    save_model(GraphMachine(config, board_spec()), tmp_path / "gm", task=task.to_dict())
    words = ["stats", str(tmp_path / "gm"), "--limit", "2", "--detect", "2"]
    printed = out_of([*words, "--rounds", "3", "--out", str(tmp_path / "out")])
    assert "measured with 3 rounds" in printed
    assert "| core l0, round 3 |" in printed
    assert (tmp_path / "out" / "by-layer.png").stat().st_size > 1000
    for other, message in [
        (["stats"], "at least"),
        (["stats", "handmade:2x2", "--limit", "0"], "at least"),
        (["stats", "handmade:2x2", "--rounds", "3"], "core"),
        ([*words, "--rounds", "2,3"], "INT"),
        ([*words, "--rounds", "3", "--growth"], "--growth"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run(other)


def test_layers_that_cannot_be_looked_into(tmp_path: Path) -> None:
    pytest.importorskip(
        "torch_geometric", reason="PyG is not installed; with the extra 'pyg', it is tested"
    )
    config = config_for("pointers-gine", "smoke")
    model = GraphMachine(config.model, task_of(config.task).spec)
    save_model(model, tmp_path / "gine", task=config.task.to_dict())
    for command in (["stats"], ["record", "--out", str(tmp_path / "x")]):
        with pytest.raises(ConfigError, match=r"model\.body=gine.*nothing to record"):
            run([*command, str(tmp_path / "gine")])


@pytest.mark.parametrize("name", ["maze-static", "maze-gm-recurrent-local"])
def test_edges_that_are_never_updated_have_no_table(
    name: str, tmp_path: Path, out_of: OutOf
) -> None:
    config = config_for(name, "smoke", settings=["task.mazes=40"])
    model = GraphMachine(config.model, task_of(config.task).spec)
    save_model(model, tmp_path / "gm", task=config.task.to_dict())
    printed = out_of(["stats", str(tmp_path / "gm"), "--limit", "1"])
    assert ": 1 maze, " in printed
    assert "Edges as referral" not in printed


def test_other_settings_are_not_other_seeds(tmp_path: Path, out_of: OutOf) -> None:
    task = SudokuConfig(box="2x2", puzzles=100)
    for name, qk_norm, rate in (("a", False, 1e-3), ("b", True, 1e-3), ("c", False, 2e-3)):
        model = GraphMachine(ModelConfig(num_layers=1, qk_norm=qk_norm), board_spec())
        train = {"steps": 7, "batch_size": 64, "peak_lr": rate}
        save_model(model, tmp_path / name, task=task.to_dict(), condition="gm", train=train)
    folders = [str(tmp_path / name) for name in "abc"]
    printed = out_of(["stats", *folders, "--limit", "2", "--detect", "0"])
    for changed in ("", ", model.qk_norm=true", ", train.peak_lr=0.002"):
        assert f"| 1 | 4x4 board, 1 layer, 7 steps of 64{changed} |" in printed


def test_all_of_a_file_is_used_and_said(tmp_path: Path, out_of: OutOf) -> None:
    data = str(write_puzzles(tmp_path / "puzzles.store", 30))
    words = ["stats", "handmade:2x2", "--data", data, "--detect", "0"]
    assert f"handmade 2x2: 30 puzzles, all of {data}" in out_of(words)
    assert f"handmade 2x2: 2 puzzles, the eval split of {data}" in out_of(
        [*words, "--split", "eval"]
    )
