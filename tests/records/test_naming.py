"""Paths, shorthand, cells: parsed and printed in one place."""

from collections.abc import Callable

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab.records.naming import (
    Shorthand,
    TensorPath,
    axes_of,
    cell_name,
    matches,
    paper_cells,
    parse_cell,
)


@pytest.mark.parametrize(
    "text", ["layers.3.edge.0.n2_weights", "layers.31.node.2.weights", "coder.layers.0.edge.1.x"]
)
def test_path_round_trip(text: str) -> None:
    assert str(TensorPath.parse(text)) == text


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (TensorPath.parse, ["layers.3.n2_weights", "layers.x.edge.0.y", ""]),
        (Shorthand.parse, ["l1", "e2r", "s0l1x2", "l1r", "l1r2r"]),
        (lambda text: parse_cell(text, (9, 9)), ["r0c1", "r10c1", "81", "x", "r1", "n3"]),
        (lambda text: parse_cell(text, (1, 8)), ["n8", "r2"]),
    ],
    ids=["path", "shorthand", "cell", "node"],
)
def test_what_is_not_understood(parse: Callable[[str], object], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ConfigError, match=f"{text}.*"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("s0l1e2r", "layers.1.edge.0.address_ins"),
        ("s15l1e2a", "layers.1.node.0.address_ins"),
        ("l0r2", "layers.0.edge.0.address_outs"),
        ("l31a7", "layers.31.node.0.weights"),
        ("l1.1r2", "layers.1.edge.1.address_outs"),
    ],
)
def test_shorthand(text: str, path: str) -> None:
    short = Shorthand.parse(text)
    assert str(short) == text
    assert short.path() == path


def test_shorthand_of_other_tensors() -> None:
    assert Shorthand.parse("l0r2").path("n2_weights") == "layers.0.edge.0.n2_weights"
    assert Shorthand.parse("l3e2") == Shorthand.parse("l3e2r")  # the paper's `l3e2`


def test_cells_count_from_one() -> None:
    # The paper's r2c2 is the centre of the top-left box of a 9x9 board.
    assert parse_cell("r2c2", (9, 9)) == 10
    assert cell_name(10, 9) == "r2c2"
    assert parse_cell("7", (9, 9)) == parse_cell(7, (9, 9)) == 7
    # Nodes of graphs and sequences count from 0.
    assert parse_cell("n3", (1, 8)) == parse_cell("r1c4", (1, 8)) == 3


@pytest.mark.parametrize(
    ("side", "box", "names"),
    [
        (9, (3, 3), ["r2c2", "r2c5", "r5c2"]),
        (4, (2, 2), ["r2c2", "r2c3", "r3c2"]),
        (6, (2, 3), ["r2c2", "r2c4", "r4c2"]),
        (9, None, ["r2c2", "r2c5", "r5c2"]),
    ],
)
def test_paper_cells(side: int, box: tuple[int, int] | None, names: list[str]) -> None:
    assert [cell_name(cell, side) for cell in paper_cells(side, side, box)] == names


def test_patterns() -> None:
    path = "layers.3.edge.0.n2_weights"
    for pattern in ("*", "n2_weights", "n2_*", "layers.3.*", path):
        assert matches(path, [pattern])
    assert not matches(path, ["weights", "layers.4.*", "e2_*"])


def test_axes_of_unknown_tensors_are_numbered() -> None:
    assert axes_of("layers.0.edge.0.mine", 3) == ("sample", "axis1", "axis2")
    assert axes_of("e2_factors", 4) == ("sample", "head", "source", "target")
