"""Whom to look at: checkpoints, run folders and the hand-built GM, with their data."""

import json
from pathlib import Path

import pytest

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.opening import open_model
from graph_machine.models import GraphMachine, save_model
from support.recordings import TRANSFORMER, small_model

TASK = SudokuConfig(box="2x2", puzzles=200)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder as training writes it."""
    train = {"steps": 7, "batch_size": 64}
    config = {"task": TASK.to_dict(), "train": train}
    facts = {"condition": "gm", "seed": 3, "config": config, "data": {"identity": "x"}}
    facts |= {"format": "graph-machine-run", "version": 1}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    extra = {"task": TASK.to_dict(), "condition": "gm", "seed": 3}
    save_model(small_model(), tmp_path / "model", **extra)
    return tmp_path


def test_run_folder(run: Path) -> None:
    for name in (run, run / "model"):
        subject = open_model(str(name))
        assert subject.name == "gm-3"
        assert subject.seed == 3
        assert subject.known_task.blocks == (2, 2)
        assert subject.budget == "4x4 board, 2 layers, 7 steps of 64"
    batch, about = subject.samples(None, 4)
    assert batch.tokens is not None
    assert batch.tokens.shape == batch.answers.shape == (4, 16)
    assert about["split"] == "test"
    assert about["seed"] == 3
    assert ((batch.tokens == 0) | (batch.tokens == batch.answers + 1)).all()
    batches = list(subject.batches(None, batch_size=4, limit=6))
    assert [len(part) for part in batches] == [4, 2]
    assert (batches[0].answers == batch.answers).all()


def test_a_core_and_a_warm_start_are_told(run: Path) -> None:
    save_model(small_model(core_layers=2, rounds=5), run / "model")
    facts = json.loads((run / "run.json").read_text()) | {"init_from": "gm-4x4"}
    (run / "run.json").write_text(json.dumps(facts))
    what = "4x4 board, 2 layers and a core of 2, 5 rounds, 7 steps of 64 after a warm start"
    assert open_model(run).budget == what


def test_bare_checkpoints(tmp_path: Path) -> None:
    save_model(small_model(**TRANSFORMER), tmp_path)
    subject = open_model(str(tmp_path))
    assert subject.name == "transformer-0"
    assert subject.task is None
    assert "training unknown" in subject.budget


def test_a_model_of_another_task(tmp_path: Path) -> None:
    spec = InputSpec(num_tokens=4, num_outputs=3, num_edge_categories=3)
    save_model(GraphMachine(ModelConfig(num_layers=1), spec), tmp_path)
    subject = open_model(str(tmp_path))
    assert subject.task is None
    with pytest.raises(CheckpointError, match="task"):
        subject.open_data(None)


@pytest.mark.parametrize("box", ["2x2", "2x3"])
def test_handmade(box: str) -> None:
    subject = open_model(f"handmade:{box}")
    assert str(subject.budget).endswith("built by hand")
    assert subject.name == f"handmade {box}"


def test_errors(run: Path) -> None:
    with pytest.raises(ConfigError, match="Box"):
        open_model("handmade:x")
    with pytest.raises(CheckpointError, match="checkpoint"):
        open_model(str(run / "nowhere"))
    (run / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"run\.json"):
        open_model(str(run))
    save_model(small_model(), run / "model", task={"name": "chess"})
    (run / "run.json").unlink()
    with pytest.raises(CheckpointError, match="task config"):
        open_model(str(run))
