"""Edges on graphs and in mazes."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.text import Annotation

from graph_machine.config import ModelConfig
from graph_machine.errors import DataError
from graph_machine.lab.analysis.figures import applicable, draw_figure
from graph_machine.lab.analysis.figures.board import INFERRED
from graph_machine.lab.analysis.figures.edges_to_show import Choice
from graph_machine.lab.analysis.figures.node_link import (
    Pointing,
    _draw_maze,
    edges_on_graph,
    layout,
    new_edges,
    passages,
)
from graph_machine.lab.analysis.regions import hop_distances
from graph_machine.lab.config import AlgorithmsConfig, MazeConfig, PointersConfig
from graph_machine.lab.records import record
from graph_machine.lab.records.drawing import FILLED, marked_nodes
from graph_machine.lab.records.record import Record
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.maze.mazes import parse_maze
from graph_machine.models import GraphMachine
from support.recordings import handmade_record

CORE = {"core_layers": 1, "core_edge_sublayers": 1, "rounds": 2}


def pointers_record(**settings: object) -> Record:
    task = make_task(PointersConfig(nodes=7, train_hops=2, test_hops=3, name_width=0))
    config = ModelConfig(num_layers=1, d_node=8, num_heads=2).replace(**settings)
    return record(GraphMachine(config, task.spec), task.batch(0, 2, 0), name="p")


def test_the_slot_that_reaches_farthest() -> None:
    """A chain 0 > 1 > 2 > 2: slot 0 stays, slot 1 goes two hops, slot 2 is everywhere a little."""
    targets = np.array([[1], [2], [2]])
    addresses = np.full((3, 3, 3), 0.1)
    addresses[:, 0] = np.eye(3)
    addresses[:, 1] = [0, 0, 1]
    found = Pointing.farthest(addresses, hop_distances(targets))
    assert found.slot == 1
    assert found.targets.tolist() == [2, 2, 2]
    assert found.hops.tolist() == [2, 1, 0]


def test_layers_come_before_rounds() -> None:
    titles = [title for title, _ in new_edges(pointers_record(**CORE))]
    assert titles == ["layer 0", "round 1", "round 2"]


def test_a_figure_of_given_graphs_alone() -> None:
    mine, board = pointers_record(), handmade_record()
    assert [name for name, _ in applicable("graph", [mine, board])] == ["graph"]
    assert len(draw_figure("graph", [mine], sample=1).axes) == 2
    for name in ("puzzle", "adaptive", "labour", "late"):
        with pytest.raises(DataError, match=r"board|puzzle"):
            draw_figure(name, [mine])
    part = record(*_again(mine), names=("weights",))
    with pytest.raises(DataError, match="address_outs"):
        draw_figure("graph", [part])


def _again(made: Record) -> tuple[GraphMachine, Batch]:
    task = make_task(PointersConfig(nodes=7, train_hops=2, test_hops=3, name_width=0))
    config = ModelConfig.from_dict(made.meta["model"]["config"])
    return GraphMachine(config, task.spec), task.batch(0, 2, 0)


def test_places_are_the_same_every_time_and_inside_the_square() -> None:
    targets = np.array([[1, -1], [0, -1], [2, -1], [4, 3], [3, -1]])
    places = layout(targets)
    assert np.array_equal(places, layout(targets))
    assert places.min() >= 0
    assert places.max() <= 1
    assert len(np.unique(places.round(6), axis=0)) == 5


def heads(axes: Axes) -> int:
    """Arrows on a panel."""
    return sum(isinstance(t, Annotation) and t.arrow_patch is not None for t in axes.texts)


def test_nodes_have_numbers_and_the_start_is_marked() -> None:
    task = make_task(AlgorithmsConfig(algorithm="bfs", train_nodes=8))
    batch = task.parse("2 0-1 1-2 2-3 3-4")
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2, num_edges=10), task.spec)
    made = record(model, batch, task=task)
    assert marked_nodes(made, 0) == [2]
    figure = edges_on_graph(made, Choice())
    first = [text.get_text() for text in figure.get_axes()[0].texts]
    assert [text for text in first if text] == list("01234")
    assert "Square" in figure.texts[-1].get_text()
    # An edge and its way back are one line; pointers have heads, and their ends are blue.
    assert heads(figure.get_axes()[0]) == 0
    pointers = pointers_record()
    axes = edges_on_graph(pointers, Choice()).axes[0]
    targets = pointers.inputs("targets")
    assert targets is not None
    ends = (targets[0] == np.arange(7)[:, None]).sum(axis=1) == 2
    assert heads(axes) == 7 - ends.sum()
    blue = (np.asarray(axes.collections[0].get_facecolor()) == to_rgba(INFERRED)).all(axis=1)
    assert np.array_equal(blue, ends)


def test_padding_is_not_drawn() -> None:
    """A graph of four nodes beside one of seven: it has four points and as many numbers."""
    tasks = [
        make_task(PointersConfig(nodes=n, train_hops=1, test_hops=2, name_width=0)) for n in (4, 7)
    ]
    both = Batch.join([task.batch(0, 1, 0) for task in tasks])
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), tasks[0].spec)
    made = record(model, both, name="p")
    for sample, nodes in enumerate((4, 7)):
        panel = edges_on_graph(made, Choice(sample)).axes[0]
        assert np.asarray(panel.collections[0].get_offsets()).shape == (nodes, 2)
        assert {t.get_text() for t in panel.texts} - {""} == {str(node) for node in range(nodes)}


def test_steps_are_counted_along_passages() -> None:
    hops = hop_distances(passages(parse_maze("S#G...###") == 0, side=3))
    assert hops[0, 2] == 4
    assert hops[0, 1] == 9  # a wall: there is no way


def test_a_figure_of_mazes_alone() -> None:
    config = MazeConfig(side=5, mazes=40)
    task = make_task(config)
    model = GraphMachine(ModelConfig(num_layers=2, d_node=8, num_heads=2), task.spec)
    batch = task.batch(0, 2, 0)
    made = record(model, batch, name="m", task=config.to_dict())
    assert [name for name, _ in applicable("maze", [made, handmade_record()])] == ["maze"]
    figure = draw_figure("maze", [made], sample=1)
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == [
        "the maze", "layer 0", "layer 1"
    ]  # fmt: skip
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    assert batch.tokens is not None
    assert ((drawn == 1).ravel() == (batch.tokens[1] == 0).numpy()).all()
    given, solved, _ = draw_figure("puzzle", [made], sample=1).axes
    for axes in (given, solved):
        assert len(axes.patches) == (batch.tokens[1] == 0).sum()  # walls are cells, not letters
    assert {text.get_text() for text in solved.texts} <= {"S", "G", "●"}
    part = record(model, batch, task=config.to_dict(), sources=[0, 1])
    with pytest.raises(DataError, match="all sources"):
        draw_figure("maze", [part])


def test_an_edge_to_itself_is_a_dot_beside_the_letter() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    cells = np.array(["S", "", FILLED, "G"])
    found = Pointing(0, np.array([0, 3, 2, 3]), np.array([1.0, 1, 1, 0.01]), np.zeros(4))
    _draw_maze(axes, cells, np.ones(4, dtype=np.int64), 2, found, np.zeros(4, dtype=bool))
    dots = axes.collections[-1].get_offsets()
    assert np.allclose(dots, [[0.32, 0.32]])  # S alone: G's weight is too small, the wall has none
