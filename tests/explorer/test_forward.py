"""A forward pass for the page is the model's own computation, cut by source cell and packed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from graph_machine.errors import DataError
from graph_machine.lab.explorer.examples import LiveModel
from graph_machine.lab.explorer.forward import RECORDED, Forward, forward_of, pack, unpack
from graph_machine.lab.records.record import Record
from graph_machine.lab.records.recorder import record
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.models.handmade import handmade_gm
from support.explorer import EASY, cells_of, puzzle_of
from support.recordings import boards, small_model

HALF = {"rtol": 2e-3, "atol": 2e-3}
KINDS = [
    {},
    {"referral": "conditional"},
    {"referral": "preaggregated"},
    {"separate_roles": True},
    {"factor_temps": False, "sharpener": "off"},
    {"attention_experts": "edge"},
    {"num_edge_sublayers": 1},
]


def run(model) -> Forward:
    return LiveModel(model).forward(puzzle_of(EASY))


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: "-".join(map(str, s.values())) or "gm")
def test_a_new_edge_is_the_mixture_of_the_edges_it_was_made_of(make_model, settings) -> None:
    forward = run(make_model(**settings))
    path = "layers.0.edge.0"
    arrays = {k: v.astype(np.float32) for k, v in forward.arrays.items()}
    pairs = arrays[f"{path}.e2_weights"]  # n h m l
    e2 = arrays.get(f"{path}.address_ins_e2", arrays[f"{path}.address_ins"])  # m l a
    assert_allclose(np.einsum("nhml,mla->nha", pairs, e2), arrays[f"{path}.address_outs"], **HALF)
    assert_allclose(pairs.sum(-1), arrays[f"{path}.n2_weights"], **HALF)


def test_the_factors_add_up_to_the_n2_weights(make_model) -> None:
    forward = run(make_model())
    path = "layers.1.edge.0"
    names = ("n2_edge_factors", "n2_node_factors", "e2_factors")
    scores = sum(forward.arrays[f"{path}.{name}"].astype(np.float32) for name in names)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert_allclose(weights, forward.arrays[f"{path}.n2_weights"], **HALF)


def test_a_transformer_has_no_edges_at_all(make_model) -> None:
    model = make_model(attention_experts="node", num_edge_sublayers=0, num_edges=0)
    forward = run(model)
    assert {sublayer.kind for sublayer in forward.sublayers} == {"node"}
    assert (forward.count("slots"), forward.count("heads")) == (0, 3)
    assert set(forward.of_node(0)) == {
        f"layers.{layer}.node.0.{name}"
        for layer in (0, 1)
        for name in ("node_factors", "weights", "node_factor_temps")
    }
    assert forward.collected() == {}


def test_cells_are_cut_from_the_source_axis_and_predictions_are_the_models_own(make_model) -> None:
    model = make_model()
    forward = run(model)
    cut = forward.of_node(7)
    assert cut["layers.0.edge.0.e2_weights"].shape == (8, 16, 8)
    assert cut["layers.0.node.0.weights"].shape == (3, 16)
    assert forward.collected()["layers.1.edge.0.address_ins"].shape == (16, 8, 16)
    with pytest.raises(DataError, match="99"):
        forward.of_node(99)
    expected = model.predict([EASY])
    assert forward.answers is not None
    assert forward.probabilities is not None
    blank = cells_of(EASY)[0] == 0  # `predict` keeps the givens, a look inside does not
    assert (forward.answers == expected.answers[0])[blank].all()
    sure = forward.probabilities.max(-1)
    assert_allclose(sure[blank], expected.confidences[0][blank], rtol=1e-5)


def test_the_hand_built_machine_shows_its_regions() -> None:
    """After layer 1 slot 5 is the box, after layer 2 slots 6 and 7 are row and column."""
    forward = LiveModel(handmade_gm((3, 3))).forward(puzzle_of("." * 81, "3x3"))
    found = forward.of_node(1 * 9 + 1)
    for layer, slot, unit in ((1, 5, 2 * 9 + 0), (2, 6, 1), (3, 7, 9 + 1)):
        address = found[f"layers.{layer}.edge.0.address_outs"][slot].astype(np.float32)
        inside = BoxShape(3, 3).units[unit]
        assert address[inside].sum() > 0.99
        assert address[inside].min() > 0.05


def test_a_record_file_gives_the_same(make_model, tmp_path) -> None:
    tokens = cells_of(EASY)
    made = record(make_model(), tokens, box=(2, 2))
    loaded = Record.load(made.save(tmp_path / "x.rec.safetensors"))
    one, two = forward_of(made, 0), forward_of(loaded, 0)
    assert one.sublayers == two.sublayers
    for name, values in one.arrays.items():
        assert_allclose(values, two.arrays[name])


def test_rounds_follow_the_layers() -> None:
    model = small_model(core_layers=2, rounds=3)
    tokens, solutions = boards()
    made = record(model, tokens, solutions=solutions, names=RECORDED)
    shown = forward_of(made, 0)
    assert shown.layers == 2 + 3 * 2
    assert shown.rounds is not None
    assert shown.rounds.names(1)[0] is None
    assert shown.rounds.names(2)[0] == "Round 1 of 3, core layer 0"
    assert shown.rounds.names(7)[0] == "Round 3 of 3, core layer 1"
    known = {(s.layer, s.kind): s for s in shown.sublayers}
    for layer, short, path in ((1, "l1", "layers.1"), (7, "round 3 l1", "rounds.2.layers.1")):
        assert known[layer, "node"].short == short
        assert known[layer, "node"].recorded["weights"] == f"{path}.node.0.weights"
    assert known[7, "node"].recorded["address_ins"] == "core.layers.1.node.0.address_ins"
    # Attention of the last round, and the edges of the core, which stay, in every round.
    last = made.of_sample("rounds.2.layers.1.node.0.weights", 0)
    assert np.allclose(shown.arrays["layers.7.node.0.weights"][:, 0], last[0], atol=1e-3)
    for layer in (2, 4, 6):
        assert f"layers.{layer}.node.0.address_ins" in shown.arrays


def test_halves_come_back_exactly() -> None:
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float16)
    large = np.array([1e6, -1e6], dtype=np.float32)
    given = {"x": values, "y": np.arange(7), "z": large}
    header, arrays = unpack(pack({"a": 1, "text": "é"}, given))
    assert header == {"a": 1, "text": "é"}
    assert_array_equal(arrays["x"], values)
    assert_array_equal(arrays["y"], np.arange(7))
    assert_allclose(arrays["z"], [65504, -65504])  # clipped, not infinite


def test_steps_are_within_half_a_step_of_their_row() -> None:
    values = np.random.default_rng(0).normal(size=(4, 3, 81)).astype(np.float32)
    values[0, 0] = 0.25  # a uniform board has no range
    _, arrays = unpack(pack({}, {"x": values}, "u8"))
    spread = np.ptp(values, axis=-1, keepdims=True)
    assert np.all(np.abs(arrays["x"] - values) <= spread / 510 + 1e-6)
    values = np.zeros((32, 8, 81), dtype=np.float32)
    assert len(pack({}, {"x": values}, "u8")) < 0.6 * len(pack({}, {"x": values}, "f2"))


@pytest.mark.parametrize("precision", ["f2", "u8"])
def test_scalars_and_empty_arrays(precision: str) -> None:
    given = {"scalar": np.full((), 2.5), "empty": np.zeros((0, 4))}
    _, arrays = unpack(pack({}, given, precision))  # type: ignore[arg-type]
    assert arrays["scalar"] == 2.5
    assert arrays["empty"].shape == (0, 4)
