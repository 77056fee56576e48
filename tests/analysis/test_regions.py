"""Regions, reach, division of labour, and how regions grow over layers."""

from pathlib import Path

import numpy as np
import pytest

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import grid_graph
from graph_machine.lab.analysis import growth
from graph_machine.lab.analysis.growth import growth_figure, layer_addresses, region_growth
from graph_machine.lab.analysis.regions import (
    hop_distances,
    make_regions,
    make_spans,
    overlaps,
    reach,
)
from graph_machine.lab.cli import run
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.tasks.jigsaw.puzzles import JigsawTask, batch_regions
from graph_machine.models import GraphMachine, save_model


def test_region_sizes_of_a_9x9_board() -> None:
    regions = make_regions((9, 9), (3, 3))
    centre = {name: int(region[10].sum()) for name, region in regions.items()}  # r2c2
    assert centre == {
        "self": 1, "up": 1, "down": 1, "left": 1, "right": 1, "3x1": 3, "1x3": 3, "row": 9,
        "column": 9, "box": 9, "cross": 17, "cross+box": 21, "all": 81,
    }  # fmt: skip
    assert not regions["up"][0].any()
    assert regions["up"][10].argmax() == 1
    assert regions["right"][10].argmax() == 11


def test_regions_of_any_box_and_directions_that_no_place_has() -> None:
    assert "box" not in make_regions((3, 5))
    assert {"left", "row"} <= {*make_regions((1, 5))} <= {*make_regions((3, 5))} - {"up", "down"}
    assert make_regions((6, 6), (2, 3))["box"][0].nonzero()[0].tolist() == [0, 1, 2, 6, 7, 8]
    with pytest.raises(ConfigError, match="3x3"):
        make_regions((4, 4), (3, 3))
    assert list(make_regions((1, 4)))[:3] == ["self", "left", "right"]
    assert "3 back" not in make_spans(3)
    assert list(make_spans(2)) == ["self", "1 back", "last 4", "last 8", "last 16", "past", "all"]


@pytest.mark.parametrize("box", [(2, 2), (2, 3), (3, 3)], ids=str)
def test_overlap_is_one_exactly_on_the_region(box: tuple[int, int]) -> None:
    side = box[0] * box[1]
    regions = make_regions((side, side), box)
    masks = np.stack(list(regions.values()))
    for number, (name, region) in enumerate(regions.items()):
        weights = region / np.maximum(region.sum(axis=-1, keepdims=True), 1)
        scores = overlaps(weights, masks)
        some = region.any(axis=-1)
        np.testing.assert_allclose(scores[number][some], 1, atol=1e-9)
        assert np.isnan(scores[number][~some]).all()
        # On a border some regions coincide; over the board each is its own best.
        assert np.nanmean(scores, axis=1).argmax() == number, name


def test_overlap_is_mass_times_coverage() -> None:
    row = make_regions((9, 9))["row"][None, :1]
    one_cell = np.zeros((1, 81))
    one_cell[0, 0] = 1
    assert overlaps(one_cell, row)[0, 0] == pytest.approx(1 / 9)
    half_outside = 0.5 * row[0] / 9
    half_outside[0, 80] = 0.5
    assert overlaps(half_outside, row)[0, 0] == pytest.approx(0.5)


def test_hops() -> None:
    graph = grid_graph(3, 4, 6)
    hops = hop_distances(graph.targets.numpy())
    rows, cols = np.divmod(np.arange(12), 4)
    expected = abs(rows[:, None] - rows) + abs(cols[:, None] - cols)
    np.testing.assert_array_equal(hops, expected)
    lonely = hop_distances(np.array([[0, 1], [1, -1]]))
    np.testing.assert_array_equal(lonely, [[0, 1], [2, 0]])


def test_reach_ignores_traces_and_edges_that_point_nowhere() -> None:
    hops = hop_distances(grid_graph(1, 9, 5).targets.numpy())
    weights = np.zeros((4, 9, 9))
    weights[0, :, 0] = 1  # all on the first cell
    weights[1] = np.eye(9)
    weights[2] = 0.97 * np.eye(9)
    weights[2, :, 8] += 0.03  # a trace
    weights[3] = 1 / 9
    found = reach(weights, hops)
    np.testing.assert_array_equal(found[0], np.arange(9))
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_array_equal(found[2], 0)
    assert np.isnan(found[3]).all()


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


def test_the_command(task: JigsawTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = GraphMachine(ModelConfig(num_layers=2, d_node=16), task.spec)
    save_model(model, tmp_path / "gm", task=TASK.to_dict())
    words = ["stats", str(tmp_path / "gm"), "--growth", "--detect", "4"]
    assert run([*words, "--out", str(tmp_path / "g")]) == 0
    assert "after layer 2" in capsys.readouterr().out
    assert (tmp_path / "g" / "growth.png").exists()
    with pytest.raises(ConfigError, match="regions"):
        run(["stats", "gm-4x4", "--growth"])
