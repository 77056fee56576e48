"""Edges in a maze."""

import numpy as np
import pytest

from graph_machine.analysis.figures import applicable, draw_figure
from graph_machine.analysis.figures.maze import _draw, passages
from graph_machine.analysis.figures.node_link import Pointing
from graph_machine.analysis.regions import hop_distances
from graph_machine.config import MazeConfig, ModelConfig
from graph_machine.errors import DataError
from graph_machine.models import GraphMachine
from graph_machine.records import record
from graph_machine.tasks.base import make_task
from graph_machine.tasks.maze.mazes import parse_maze
from support.recordings import handmade_record


def test_steps_are_counted_along_passages() -> None:
    hops = hop_distances(passages(parse_maze("S#G...###"), side=3))
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
    cells = np.array([[2, 1], [0, 3]])
    found = Pointing(0, np.array([0, 3, 2, 3]), np.array([1.0, 1, 1, 0.01]), np.zeros(4))
    _draw(axes, cells, np.ones_like(cells), found, np.zeros(4, dtype=bool))
    dots = axes.collections[-1].get_offsets()
    assert np.allclose(dots, [[0.32, 0.32]])  # S alone: G's weight is too small, the wall has none
