"""Edges that referral made, given edges and the empty edge are told apart: in recordings, figures
and statistics."""

from functools import cache

import numpy as np
import pytest
from matplotlib.colors import to_hex

from graph_machine.config import ModelConfig
from graph_machine.lab.analysis.figures import FIGURES, applicable, draw_figure
from graph_machine.lab.analysis.figures.edges_to_show import Source
from graph_machine.lab.analysis.growth import growth_figure, region_growth
from graph_machine.lab.analysis.statistics import collect_statistics
from graph_machine.lab.config import (
    AlgorithmsConfig,
    JigsawConfig,
    PointersConfig,
    SudokuConfig,
    TaskConfig,
)
from graph_machine.lab.records import Record, record
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import KIND_COLOURS, SeenEdges
from graph_machine.lab.tasks.base import make_task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine

STAY = {"given_edges": "always", "empty_edge": True, "edge_values": True}
CONFIGS: dict[str, TaskConfig] = {
    "sudoku": SudokuConfig(box="2x2"),
    "jigsaw": JigsawConfig(side=4, puzzles=40),
    "bfs": AlgorithmsConfig(algorithm="bfs", train_nodes=8),
    "pointers": PointersConfig(nodes=7, train_hops=2, test_hops=3),
}


def model_on(name: str, **settings: object) -> tuple[GraphMachine, Batch, TaskConfig]:
    task = (task_of if name == "sudoku" else make_task)(CONFIGS[name])
    config = ModelConfig(num_layers=2, d_node=8, num_heads=2, num_edges=4)
    model = GraphMachine(config.replace(**(STAY | settings)), task.spec).eval()
    batch = task.batch(0, 2, 0) if name != "sudoku" else Batch.join([task.parse("." * 16)] * 2)
    return model, batch, CONFIGS[name]


@cache
def made(name: str) -> Record:
    model, batch, config = model_on(name)
    task = task_of(config)
    return record(model, batch, name=name, task=task, box=task.blocks)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_recording_knows_its_edges(name: str, tmp_path) -> None:
    """Layer 0 has made no edges yet. Weights, by the addresses of all kinds, make the new ones."""
    found = Record.load(made(name).save(tmp_path / "a.rec.safetensors"))
    targets = found.inputs("targets")
    assert targets is not None
    for layer, slots in ((0, 0), (1, 4)):
        path = f"layers.{layer}.edge.0"
        pairs = found.of_sample(f"{path}.e2_weights", 1)  # h n m t
        edges = found.edges(1, pairs.shape[-1])
        assert (edges.made, edges.has_empty) == (slots, True)
        assert np.array_equal(edges.targets, targets[1])
        stay = [
            [edges.address(node, slot) for slot in range(slots, pairs.shape[-1])]
            for node in range(found.nodes)
        ]
        ins = np.concatenate([found.of_sample(f"{path}.address_ins", 1), stay], axis=1)  # m t a
        outs = np.einsum("hnmt,mta->nha", pairs, ins)
        np.testing.assert_allclose(outs, found.of_sample(f"{path}.address_outs", 1), atol=3e-3)
        shares = edges.shares(pairs.sum(axis=2))
        assert sum(shares.values()) == pytest.approx(1, abs=1e-2)
        assert (shares["made"] == 0) == (layer == 0)


def test_names() -> None:
    targets, types = np.array([[0, 1], [2, -1], [1, 0]]), np.array([[9, 5], [6, 0], [5, 6]])
    edges = SeenEdges(1, targets, types, has_empty=True)
    words = [[edges.name(node, slot, "n{}".format) for slot in range(4)] for node in range(2)]
    assert words[0] == ["e0", "given self", "given n1 (type 5)", "empty"]
    assert words[1] == ["e0", "given n2 (type 6)", "none", "empty"]
    causal = SeenEdges(0, targets, types, has_empty=True, is_causal=True)
    assert causal.address(1, 2).tolist() == [0.5, 0.5, 0]
    # On a grid the direction says it, unless there is more to say.
    assert made("sudoku").edges(0).named_types is None
    assert made("jigsaw").edges(0).named_types is not None
    first = record(*model_on("sudoku", given_edges="first", empty_edge=False, num_edges=6)[:2])
    assert not first.edges(0).stay
    assert first.edges(0, 6).made == 6
    assert first.edges(0).to_json() is None


@pytest.mark.parametrize("name", CONFIGS)
def test_every_figure_draws(name: str) -> None:
    found = made(name)
    drawn = [each for figure in FIGURES for each in applicable(figure, [found])]
    for figure, records in drawn:
        if found.grid is not None or figure == "graph":
            draw_figure(figure, records)
    assert drawn


def test_figures_of_graphs_draw_given_edges_apart() -> None:
    figure = draw_figure("graph", [made("bfs")])
    first, *layers = figure.axes
    assert first.get_title() == "given edges"
    assert "given" in figure.texts[-1].get_text()
    for axes in layers:
        assert {"made", "given", "empty"} <= set(axes.get_title().replace("\n", " ").split())
        assert {to_hex(line.get_color()) for line in axes.lines} == {KIND_COLOURS["given"]}


def test_figures_of_boards_draw_given_edges_apart() -> None:
    """A head that collects a given edge of r1c1 and the empty edge of r1c2, and nothing else."""
    found = made("sudoku")
    tensors = {name: found[name].copy() for name in found.axes}
    pairs = tensors["layers.1.edge.0.e2_weights"]  # sample head source target slot
    pairs[:, 2] = 0
    pairs[:, 2, :, 0, 6] = 0.75  # made slots are 0 to 3, given ones begin with the cell itself
    pairs[:, 2, :, 1, -1] = 0.25
    edited = Record(tensors, found.meta)
    figure = draw_figure("compose", [edited], heads={"cross": "l1r2"}, regions=())
    boards = {axes.get_title(): axes for axes in figure.axes}
    edges = edited.edges(0, pairs.shape[-1])
    given = f"{edges.name(0, 6, edited.label)} of r1c1"
    assert given.startswith("given r")
    names = {given: "Oranges", "empty of r1c2": "Greys", "l1r2 new address": "Blues"}
    for title, colours in names.items():
        assert boards[title].collections[0].get_cmap().name == colours
    assert any("e2: given 0.75 empty 0.25" in text.get_text() for text in figure.texts)
    assert "orange: given" in figure.texts[-1].get_text()
    chain = Source(edited, 5).lineage(Shorthand.parse("l1r2"))
    assert [str(head) for head in chain] == ["l1r2"]  # no head has made given edges


@pytest.mark.parametrize("name", CONFIGS)
def test_statistics_of_layers_without_made_edges(name: str) -> None:
    model, batch, _ = model_on(name)
    found = collect_statistics(model, [batch], box=(2, 2) if name == "sudoku" else None)
    assert {value.layer for value in found.values} >= {0, 1}


def test_growth_begins_with_given_edges() -> None:
    model, batch, config = model_on("jigsaw")
    task = make_task(config)
    growth = region_growth(model, task, [batch])
    figure = growth_figure(model, task, batch, growth, 5)
    assert figure.texts[0].get_text() == "given"
    first = figure.axes[0]
    assert first.get_xlabel() == "given edges"
    assert first.collections[0].get_cmap().name == "Oranges"
    values = np.asarray(first.collections[0].get_array()).reshape(-1)
    assert values.sum() == pytest.approx(1)
    assert growth.overlaps.shape == (3, 3, 4)
