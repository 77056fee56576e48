"""Edges on graphs that are no board."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.text import Annotation

from graph_machine.analysis.figures import applicable, draw_figure
from graph_machine.analysis.figures.node_link import (
    Pointing,
    edges_on_graph,
    layout,
    new_edges,
)
from graph_machine.analysis.figures.style import INFERRED
from graph_machine.analysis.regions import hop_distances
from graph_machine.config import AlgorithmsConfig, ModelConfig, PointersConfig
from graph_machine.errors import DataError
from graph_machine.models import GraphMachine
from graph_machine.records import record
from graph_machine.records.cells import marked_nodes
from graph_machine.records.record import Record
from graph_machine.tasks.base import make_task
from graph_machine.tasks.batch import Batch
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
        with pytest.raises(DataError, match=r"shows a board|one puzzle"):
            draw_figure(name, [mine])
    part = record(*_again(mine), names=("weights",))
    with pytest.raises(DataError, match="need a recording of address_outs"):
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
    figure = edges_on_graph(made)
    first = [text.get_text() for text in figure.get_axes()[0].texts]
    assert [text for text in first if text] == list("01234")
    assert "Square" in figure.texts[-1].get_text()
    # An edge and its way back are one line; pointers have heads, and their ends are blue.
    assert heads(figure.get_axes()[0]) == 0
    pointers = pointers_record()
    axes = edges_on_graph(pointers).axes[0]
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
        panel = edges_on_graph(made, sample=sample).axes[0]
        assert np.asarray(panel.collections[0].get_offsets()).shape == (nodes, 2)
        assert {t.get_text() for t in panel.texts} - {""} == {str(node) for node in range(nodes)}
