"""Every figure of the paper draws, from recordings alone, what it says it draws."""

import sys
from pathlib import Path

import numpy as np
import pytest

from graph_machine.errors import ConfigError, DataError, DiskFullError, MissingExtraError
from graph_machine.lab.analysis.figures import (
    FIGURES,
    applicable,
    board,
    draw_figure,
    per_puzzle,
    regions,
)
from graph_machine.lab.analysis.figures.board import (
    Geometry,
    Panel,
    panels,
    save_figure,
    sheet,
    sheet_names,
)
from graph_machine.lab.analysis.figures.edges_to_show import (
    Choice,
    Source,
    adaptive_edges,
    default_cells,
    edge_adaptivity,
)
from graph_machine.lab.analysis.figures.layers import layers_figure, reach_figure
from graph_machine.lab.analysis.regions import make_regions
from graph_machine.lab.analysis.statistics import Group, Statistics, collect_statistics
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record
from support.recordings import TRANSFORMER, board_batch, handmade_record, random_record, small_model

BOXES = ((2, 2), (2, 3), (3, 3))


@pytest.mark.parametrize(
    "name", [name for name in FIGURES if name not in ("rounds", "graph", "maze")]
)
def test_every_figure_draws(name: str) -> None:
    records = [random_record(), random_record("transformer")]
    drawn = applicable(name, records)
    assert len(drawn) == 1
    figure = draw_figure(*drawn[0], sample=None)
    assert len(figure.get_axes()) >= 3
    for axes in figure.get_axes():
        assert axes.get_xlim() == (0, 4)
        assert axes.get_title()


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_construct_finds_and_shows_the_built_regions(box: tuple[int, int]) -> None:
    made = handmade_record(box)
    side = box[0] * box[1]
    found = regions.find_regions(made, ("box", "row", "column", "cross", "cross+box"))
    heads = {name: str(head) for name, (head, _) in found.items()}
    assert heads["box"] == "l1r5"
    assert heads["row"][2:] == "r6"
    assert heads["column"][2:] == "r7"
    assert heads["cross"] == "l4r1"
    assert heads["cross+box"] == "l5r2"
    source = default_cells(made)[0]
    for name, (head, _) in found.items():
        shown = Source(made, source).look(head) > 1e-3
        np.testing.assert_array_equal(shown, make_regions((side, side), box)[name][source])


def test_what_is_drawn_is_what_was_recorded() -> None:
    """The colours of a board are the recorded weights, cell by cell."""
    made = handmade_record((2, 3))
    figure = regions.construct(made, Choice(heads={"box": "l1r5"}, regions=(), depth=1))
    axes = figure.get_axes()[-1]
    assert axes.get_title() == "l1r5 new address"
    mesh = axes.collections[0]
    colours = np.asarray(mesh.get_array()).reshape(-1)
    np.testing.assert_allclose(colours, made.find("l1r5", default_cells(made)[0]))
    assert mesh.get_clim() == (0, pytest.approx(1 / 6, rel=1e-3))
    assert axes.get_xlabel() == "0.17"


def test_lineage_leads_back_to_the_first_layer() -> None:
    made = handmade_record()
    chain = Source(made, 5).lineage(Shorthand.parse("l3r6"))
    assert [str(head) for head in chain][1:] == ["l1r6", "l2r6", "l3r6"]
    assert chain[0].layer == 0


def preaggregated_record(shift: int = 1) -> Record:
    """A recording in which head h of every layer collects slot h + `shift`, by construction."""
    made = handmade_record()
    tensors = {name: made[name] for name in made.axes if not name.endswith(".e2_weights")}
    axes = {name: made.axes[name] for name in tensors}
    for name in [name for name in tensors if name.endswith(".n2_weights")]:
        samples, heads, _, targets = tensors[name].shape
        own = np.zeros((samples, heads, targets, heads), dtype=np.float32)
        for head in range(heads):
            own[:, head, :, (head + shift) % heads] = 1.0
        path = name.replace("n2_weights", "e2_own_weights")
        tensors[path], axes[path] = own, ("sample", "head", "target", "e2_slot")
    return Record(tensors, made.meta | {"axes": {n: list(a) for n, a in axes.items()}})


def test_lineage_of_preaggregated_referral_follows_what_was_collected() -> None:
    made = preaggregated_record()
    slots = made["layers.0.edge.0.address_outs"].shape[2]
    chain = Source(made, 5).lineage(Shorthand.parse("l3r6"))
    expected = [(6 + back) % slots for back in (3, 2, 1, 0)]
    assert [(head.layer, head.index) for head in chain] == list(enumerate(expected))
    titles = [axes.get_title() for axes in regions.compose(made, Choice()).get_axes()]
    assert any("e2r of" in title or "e0r of" in title for title in titles), titles


def test_lineage_ends_where_collecting_was_not_recorded() -> None:
    made = handmade_record()
    tensors = {name: made[name] for name in made.axes if not name.endswith(".e2_weights")}
    axes = {name: list(made.axes[name]) for name in tensors}
    chain = Source(Record(tensors, made.meta | {"axes": axes}), 5).lineage(Shorthand.parse("l3r6"))
    assert [str(head) for head in chain] == ["l3r6"]


def test_compose_shows_the_edges_that_were_collected() -> None:
    titles = [axes.get_title() for axes in regions.compose(handmade_record(), Choice()).get_axes()]
    assert {"l4e6r of r2c2", "l4e7r of r2c2", "l4r1 new address"} <= set(titles)


def titles_of(figure) -> list[str]:
    return [axes.get_title() for axes in figure.get_axes()]


def test_edges_as_they_come_in() -> None:
    """`l2e5` is the box that head l1r5 has made, after sharpening: the paper's way of naming it."""
    made = handmade_record()
    source = default_cells(made)[0]
    figure = regions.construct(made, Choice(heads={"box": "l2e5"}, regions=(), depth=1))
    assert titles_of(figure)[-2:] == ["l1r5 new address", "l2e5r address-in"]
    colours = np.asarray(figure.get_axes()[-1].collections[0].get_array()).reshape(-1)
    np.testing.assert_allclose(colours, made.find("l2e5r", source))
    figure = regions.expansion(made, Choice(heads={"row": "l4e6"}, sources=[source]))
    shown = titles_of(figure)
    chain = [f"l{n + 1}e6r address-in" for n in (1, 2, 3)]
    assert shown[1:4] == chain
    assert not any(title.startswith("l3r6") for title in shown)
    figure = per_puzzle.adaptive(made, Choice(heads=["l1e2", "l0r2", "l5e1a"], samples=[0, 1]))
    assert titles_of(figure) == [
        f"s{s}{edge}" for edge in ("l1e2r", "l0r2", "l5e1a") for s in (0, 1)
    ]
    assert "address-in" in figure.texts[-1].get_text()
    titles = titles_of(regions.compose(made, Choice(heads={"cross": "l5e1"}, regions=())))
    assert titles[-1] == "l5e1r address-in"
    assert "l4e6r of r2c2" in titles
    assert "l3e6r" in regions.middle(made, Choice(heads={"row": "l3e6"})).texts[0].get_text()


def test_who_made_an_edge() -> None:
    made = handmade_record()
    last = made.num_layers - 1
    assert str(regions.maker(made, Shorthand.parse("l3e6"))) == "l2r6"
    assert str(regions.maker(made, Shorthand.parse("l3e6a"))) == "l3r6"
    assert str(regions.coming_in(made, Shorthand.parse("l2r6"))) == "l3e6r"
    assert str(regions.coming_in(made, Shorthand.parse(f"l{last}r6"))) == f"l{last}e6a"
    with pytest.raises(ConfigError, match="l0e6r"):
        regions.maker(made, Shorthand.parse("l0e6"))


def test_recordings_of_different_puzzles_are_not_compared() -> None:
    made, other = random_record(), random_record("transformer")
    tensors = {name: other.tensors[name] for name in other.tensors}
    tensors["inputs.tokens"] = np.roll(tensors["inputs.tokens"], 1, axis=0)
    for changed in (
        Record(tensors, other.meta),
        Record(other.tensors, other.meta | {"samples": [7, 8, 9, 10]}),
    ):
        with pytest.raises(DataError, match="'puzzle'"):
            applicable("puzzle", [made, changed])
        assert applicable("construct", [made, changed])
    assert applicable("puzzle", [made, other])


def test_adaptive_edges_are_those_that_vary() -> None:
    made = handmade_record()
    tensors = {name: made[name].copy() for name in made.axes}
    moved = tensors["layers.2.edge.0.address_outs"]
    moved[:, 5, 3] = np.eye(16)[:4]  # another target in every sample
    edited = Record(tensors, made.meta)
    head = adaptive_edges(edited, 5, range(6), 1)[0]
    assert str(head) == "l2r3"
    assert edge_adaptivity(edited, head, 5) == pytest.approx(0.75)  # four targets, one each
    assert edge_adaptivity(made, head, 5) == pytest.approx(0, abs=1e-6)


def test_puzzle_marks_wrong_cells() -> None:
    made = random_record()
    axes = per_puzzle.puzzle([made], Choice()).get_axes()[-1]
    assert made.tokens is not None
    assert made.answers is not None
    assert made.solutions is not None
    wrong = ((made.tokens == 0) & (made.answers != made.solutions))[0].sum()
    assert len(axes.patches) == wrong
    asked = int((made.tokens == 0)[0].sum())
    assert axes.get_xlabel() == f"{asked - wrong} of {asked} answers right"


def test_sheets_show_every_cell() -> None:
    figure = sheet(handmade_record(), "l1r5")
    assert [axes.get_title() for axes in figure.get_axes()[:5]] == [
        "r1c1", "r1c2", "r1c3", "r1c4", "r2c1",
    ]  # fmt: skip
    assert len(figure.get_axes()) == 16
    names = sheet_names(random_record())
    assert names == [f"l{n}{kind}" for n in (0, 1) for kind in [*R, *A]]


R = [f"r{slot}" for slot in range(6)]
A = [f"a{head}" for head in range(2)]


def test_colours_of_a_uniform_board_are_pale() -> None:
    geometry = Geometry(4, 4, (2, 2))
    figure = panels([[Panel("", np.full(16, 1 / 16)), Panel("", np.eye(16)[3]), None]], geometry)
    limits = [axes.collections[0].get_clim()[1] for axes in figure.get_axes()]
    assert limits == [board.FLOOR_TIMES / 16, 1]


def test_files(tmp_path: Path) -> None:
    figure = per_puzzle.puzzle([random_record()], Choice())
    for file in save_figure(figure, tmp_path / "new" / "a.b", ("pdf", "png", "svg")):
        assert file.stat().st_size > 1000
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.b.pdf", "a.b.png", "a.b.svg"]


def measured_once(kind: str) -> Statistics:
    model = small_model(**(TRANSFORMER if kind == "transformer" else {}))
    return collect_statistics(model, [board_batch()], box=(2, 2))


def test_plots_by_layer() -> None:
    gm, transformer = (
        Group(kind, "4x4 board", (0,), (measured_once(kind),), (4, 4), (2, 2))
        for kind in ("gm", "transformer")
    )
    figure = layers_figure([gm, transformer])
    assert len(figure.get_axes()) == 4
    assert reach_figure([transformer]) is None
    assert reach_figure([gm, transformer]) is not None


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    gm, transformer = random_record(), random_record("transformer")
    with pytest.raises(ConfigError, match="'constructs'"):
        applicable("constructs", [gm])
    assert applicable("construct", [transformer]) == []
    with pytest.raises(DataError, match="needs 'address_outs'"):
        regions.construct(transformer, Choice())
    for heads, message in (
        ({"bocks": "l0r2"}, r"Unknown region 'bocks'\. Did you mean 'box'"),
        ({"box": "l0a2"}, "box=l0a2: a region is made by a referral head"),
    ):
        with pytest.raises(ConfigError, match=message):
            regions.construct(gm, Choice(heads=heads))
    with pytest.raises(ConfigError, match="l1e2"):
        per_puzzle.adaptive(gm, Choice(heads=["l0a1"]))
    with pytest.raises(DataError, match="boards differ"):
        applicable("late", [gm, handmade_record((3, 3))])
    with pytest.raises(DataError, match="layers"):
        per_puzzle.attention(transformer, Choice(layers=[9]))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"graph-machine\[analysis\]"):
        per_puzzle.puzzle([gm], Choice())


@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_a_full_disk_is_one_line(tmp_path: Path, kind: str) -> None:
    """The PDF backend hides the system's error behind one of its own."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    figure = panels([[Panel("a", np.full(16, 1 / 16))]], Geometry(4, 4, (2, 2)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(DiskFullError, match="full"):
            save_figure(figure, tmp_path / "figure", (kind,))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
