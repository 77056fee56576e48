"""Edges against the regions of each example: known addresses have known overlaps."""

from pathlib import Path

import numpy as np
import pytest

from graph_machine.analysis import growth
from graph_machine.analysis.growth import growth_figure, layer_addresses, region_growth
from graph_machine.cli import run
from graph_machine.config import JigsawConfig, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.models import GraphMachine
from graph_machine.tasks.jigsaw.neighbours import batch_regions
from graph_machine.tasks.jigsaw.task import JigsawTask

TASK = JigsawConfig(side=4, puzzles=40)


@pytest.fixture(scope="module")
def task() -> JigsawTask:
    return JigsawTask(TASK).open()


def test_overlap_of_known_edges(task: JigsawTask, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = task.batch(0, 3, seed=0)
    model = GraphMachine(ModelConfig(num_layers=2, d_node=16), task.spec)
    assert [a.shape for a in layer_addresses(model, batch)] == [(3, 16, 8, 16)] * 3

    labels = batch_regions(batch)
    same = (labels[:, :, None] == labels[:, None]) / 4.0
    made = np.stack([np.broadcast_to(np.eye(16), (3, 16, 16)), same], axis=2)  # b n k m
    monkeypatch.setattr(growth, "layer_addresses", lambda *_: [made])
    found = region_growth(model, task, [batch])
    assert found.kinds == ("row", "column", "region")
    assert found.overlaps[0, :, 0] == pytest.approx([0.25, 0.25, 0.25])
    assert found.overlaps[0, 2, 1] == pytest.approx(1.0)
    assert found.overlaps[0, 0, 1] < 1.0
    assert "1.00 (slot 1)" in found.markdown()
    assert growth_figure(model, task, batch, found, 5).axes


def test_nothing_to_look_at(task: JigsawTask) -> None:
    plain = ModelConfig(num_layers=1, num_edges=0, attention_experts="node", num_edge_sublayers=0)
    with pytest.raises(ConfigError, match="no edges"):
        layer_addresses(GraphMachine(plain, task.spec), task.batch(0, 2, 0))
    with pytest.raises(ConfigError, match="no examples"):
        region_growth(GraphMachine(ModelConfig(num_layers=1), task.spec), task, [])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    train = ["train", "jigsaw-gm", "--budget", "smoke", "--steps", "1", "--progress", "none"]
    assert run([*train, "--out", str(out)]) == 0
    assert run(["stats", str(out), "--growth", "--detect", "4", "--out", str(tmp_path / "g")]) == 0
    assert "after layer 2" in capsys.readouterr().out
    assert (tmp_path / "g" / "growth.png").exists()
    with pytest.raises(ConfigError, match="no regions that differ by example"):
        run(["stats", "gm-4x4", "--growth"])
