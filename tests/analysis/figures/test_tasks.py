"""Figures of tasks that are not Sudoku: what is asked, which characters, whose regions."""

from functools import cache

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from graph_machine.config import ModelConfig
from graph_machine.errors import DataError
from graph_machine.lab.analysis.figures import (
    FIGURES,
    applicable,
    check_given,
    draw_figure,
    lacks,
    missing,
    per_puzzle,
    regions,
)
from graph_machine.lab.analysis.figures.board import WALL_COLOUR, Geometry, sheet
from graph_machine.lab.analysis.figures.edges_to_show import Choice, Source
from graph_machine.lab.config import JigsawConfig, MazeConfig, RecallConfig, TaskConfig
from graph_machine.lab.records import record
from graph_machine.lab.records.drawing import known_asked
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record
from graph_machine.lab.tasks.base import make_task
from graph_machine.models import GraphMachine
from support.recordings import board_batch, boards, random_record, small_model

CONFIGS: dict[str, TaskConfig] = {
    "maze": MazeConfig(side=5, mazes=40),
    "recall": RecallConfig(length=24, pairs=4, test_pairs=4, keys=8, values=8),
    "jigsaw": JigsawConfig(side=4, puzzles=40),
    "told": JigsawConfig(side=4, puzzles=40, regions_in_tokens=True),
}


@cache
def made(name: str, rounds: int = 0) -> Record:
    task = make_task(CONFIGS[name])
    config = ModelConfig(num_layers=2, d_node=8, num_heads=2)
    if rounds:
        config = config.replace(core_layers=1, rounds=rounds)
    return record(GraphMachine(config, task.spec), task.batch(0, 3, 0), name=name, task=task)


def without(found: Record, *names: str) -> Record:
    """A recording as it was written before it had these inputs."""
    tensors = {k: found.tensors[k] for k in found.tensors if k.removeprefix("inputs.") not in names}
    axes = {name: list(axes) for name, axes in found.axes.items() if name in tensors}
    return Record(tensors, found.meta | {"axes": axes})


def characters(axes) -> str:
    return "".join(text.get_text() for text in axes.texts)


def walls(axes) -> int:
    return sum(to_hex(patch.get_facecolor()) == WALL_COLOUR for patch in axes.patches)


def borders(axes) -> int:
    """Lines between regions: all others are as long as the board."""
    lines = [part for part in axes.collections if isinstance(part, LineCollection)]
    ends = [segment for part in lines for segment in part.get_segments()]
    return sum(abs(end - start).sum() == 1 for start, end in ends)


def borders_between(labels: np.ndarray, side: int) -> int:
    grid = labels.reshape(side, side)
    return int((grid[1:] != grid[:-1]).sum() + (grid[:, 1:] != grid[:, :-1]).sum())


def test_a_maze_is_asked_at_its_open_cells() -> None:
    found = made("maze")
    puzzle, solution, model = per_puzzle.puzzle([found], Choice()).get_axes()
    assert found.tokens is not None
    assert found.answers is not None
    assert found.solutions is not None
    cells = found.tokens[0]
    assert characters(puzzle) == "".join("SG"[cell - 2] for cell in cells if cell > 1)
    assert walls(puzzle) == walls(solution) == int((cells == 0).sum())
    on_path = int((found.solutions[0] * (cells == 1)).sum())
    assert characters(solution).count("●") == on_path
    wrong = int(((cells == 1) & (found.answers != found.solutions)[0]).sum())
    assert len(model.patches) - walls(model) == wrong
    assert (
        model.get_xlabel() == f"{(cells == 1).sum() - wrong} of {(cells == 1).sum()} answers right"
    )
    assert "Digits" not in draw_figure("adaptive", [found]).texts[-1].get_text()
    first = draw_figure("rounds", [made("maze", rounds=2)]).get_axes()[0]  # of the same mazes
    assert first.get_xlabel().endswith(f" of {(cells == 1).sum()} right")
    assert walls(first) == int((cells == 0).sum())


def test_what_is_asked_of_older_recordings() -> None:
    """Sudoku's givens tell it; of a maze nothing does."""
    found = random_record()
    assert found.where is None
    assert found.tokens is not None
    asked = known_asked(found, 2)
    assert asked is not None
    assert (asked == (found.tokens[2] == 0)).all()
    stored = record(small_model(), board_batch())
    assert stored.where is not None
    assert (stored.where == (boards()[0] == 0).numpy()).all()
    with pytest.raises(DataError, match="asked"):
        per_puzzle.puzzle([without(made("maze"), "where")], Choice())
    assert draw_figure("labour", [without(made("maze"), "where")])


@pytest.mark.parametrize(
    ("task", "name", "why"),
    [
        ("recall", "puzzle", "is of sequences, and the figure shows boards"),
        ("recall", "construct", "is of sequences, which have no rows and columns"),
        ("recall", "compose", "is of sequences, which have no rows and columns"),
        ("told", "puzzle", "has no characters for its tokens"),
        ("gm", "rounds", "has no rounds"),
        ("gm", "graph", "is of boards"),
        ("gm", "maze", "is not of mazes"),
        ("gm", "attention", "has edges"),
        ("transformer", "labour", "has no edges"),
    ],
)
def test_what_a_recording_does_not_have_is_said(task: str, name: str, why: str) -> None:
    found = made(task) if task in CONFIGS else random_record(task)
    assert applicable(name, [found]) == []
    with pytest.raises(DataError, match=f"'{name}' .* the recording of {task} {why}"):
        check_given(["late", name], [found])
    assert task not in CONFIGS or lacks(FIGURES[name], random_record()) is None


@pytest.mark.parametrize("name", ["adaptive", "labour", "late"])
def test_sequences_are_strips(name: str) -> None:
    figure = draw_figure(name, [made("recall")])
    width, height = figure.get_size_inches()
    for axes in figure.get_axes():
        assert axes.get_position().height * height > 0.15
        assert not axes.texts
    assert "Characters" not in figure.texts[-1].get_text()
    wide, _ = sheet(made("recall"), "l0r1").get_size_inches()
    assert max(width, wide) < 15


def test_a_figure_of_one_sample_has_its_regions() -> None:
    found = made("jigsaw")
    assert found.regions is not None
    for sample in (0, 2):
        expected = borders_between(found.regions[sample], 4)
        for name in ("puzzle", "construct", "labour", "late"):
            axes = draw_figure(name, [found], sample=sample).get_axes()
            assert [borders(each) for each in axes] == [expected] * len(axes)
    assert Geometry.of(found).regions is None
    older = without(found, "regions")
    assert all(borders(axes) == 0 for axes in per_puzzle.puzzle([older], Choice()).get_axes())
    axes = per_puzzle.adaptive(found, Choice(samples=[0, 1, 2])).get_axes()  # side by side
    each = [borders_between(labels, 4) for labels in found.regions]
    assert [borders(panel) for panel in axes[:3]] == each


def test_construct_looks_for_the_regions_of_each_sample() -> None:
    """An edge that is exactly the region of its cell, in every sample, is found."""
    found = made("jigsaw")
    assert found.regions is not None
    tensors = {name: found[name].copy() for name in found.axes}
    for row in range(len(found.samples)):
        own = regions.known_regions(found, row)["region"]
        tensors["layers.1.edge.0.address_outs"][row, :, 3] = own / own.sum(axis=1, keepdims=True)
    edited = Record(tensors, found.meta)
    head, overlap = regions.find_regions(edited, ["row", "region"])["region"]
    assert str(head) == "l1r3"
    assert overlap == pytest.approx(1)
    labels = [text.get_text() for text in regions.construct(edited, Choice()).texts]
    assert any(label.startswith("region (overlap 1.00)") for label in labels)
    assert any(label.startswith("cross+region") for label in _labels(edited))
    assert not any("region (" in label for label in _labels(without(found, "regions")))


def _labels(found: Record) -> list[str]:
    return [text.get_text() for text in regions.compose(found, Choice()).texts]


@pytest.mark.parametrize("name", ["n2_edge_factors", "n2_node_factors", "e2_factors"])
def test_factors_of_a_sequence_leave_the_future_out(name: str) -> None:
    weights = Source(made("recall"), 9).look(Shorthand.parse("l1r0"), name)
    assert not weights[10:].any()
    assert weights[:10].sum() == pytest.approx(1, abs=1e-5)


def test_figures_that_a_sequence_cannot_have_are_named() -> None:
    found = {name for name in FIGURES if missing(name, [made("recall")]) is not None}
    assert found == {"puzzle", "construct", "middle", "expansion", "compose"}
    assert "sequences" in str(missing("puzzle", [made("recall")]))
    assert not [name for name in FIGURES if missing(name, [random_record()]) is not None]
