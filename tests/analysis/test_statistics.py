"""Statistics: streamed sums equal what a whole recording says, and reports tell them."""

import json

import numpy as np
import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.analysis.regions import best_regions
from graph_machine.lab.analysis.statistics import (
    COLUMNS,
    PAPER,
    TABLES,
    Group,
    Spread,
    Statistics,
    collect_statistics,
    contents,
    entropies,
    past,
    spread,
    spread_by_layer,
)
from graph_machine.lab.analysis.statistics_data import plain
from graph_machine.lab.analysis.statistics_text import (
    BY_SEED,
    labour_text,
    over_seeds,
    statistics_markdown,
)
from graph_machine.lab.config import JigsawConfig, PointersConfig, RecallConfig
from graph_machine.lab.records import record
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm
from support.recordings import TRANSFORMER, board_batch, boards, small_model


def measured(model: GraphMachine, parts: int = 2, **choice) -> Statistics:
    whole = board_batch()
    size = len(whole) // parts
    batches = [whole.part(start, start + size) for start in range(0, len(whole), size)]
    return collect_statistics(model, batches, box=(2, 2), **choice)


def direct(values: np.ndarray, name: str) -> float:
    """A column's mean, written out."""
    if name.endswith("_temps"):
        return float(values.mean())
    if name == "e2_factors":
        values = values.reshape(*values.shape[:-2], -1)
    values = values.astype(np.float64)
    if name.endswith("_factors"):
        values = np.exp(values - values.max(axis=-1, keepdims=True))
        values /= values.sum(axis=-1, keepdims=True)
    entropy = -(values * np.log(np.maximum(values, 1e-300))).sum(axis=-1)
    return float(entropy.mean() / np.log(values.shape[-1]))


@pytest.mark.parametrize("parts", [1, 3])
def test_streamed_means_are_those_of_a_recording(parts: int) -> None:
    model = small_model()
    found = measured(model, parts)
    made = record(model, boards()[0], half=False)
    assert found.puzzles == 4
    assert set(found.by_layer) == set(COLUMNS)
    for (sublayer, name), layers in found.by_layer.items():
        for layer, value in layers.items():
            whole = made[f"layers.{layer}.{sublayer}.0.{name}"]
            assert value == pytest.approx(direct(whole, name), rel=1e-4, abs=1e-6)
        mean = found.mean((sublayer, name))
        assert mean == pytest.approx(sum(layers.values()) / len(layers))


def test_a_transformer_has_what_the_paper_gives_for_it() -> None:
    found = measured(small_model(**TRANSFORMER))
    assert set(found.by_layer) == set(PAPER["Transformer"])
    assert found.mean(("edge", "address_ins")) is None
    assert not found.edges
    # The node factor is the weight: there is no other expert.
    factors, weights = found.mean(("node", "node_factors")), found.mean(("node", "weights"))
    assert factors == pytest.approx(weights)


def test_the_paper_has_a_number_in_every_column() -> None:
    assert set(PAPER["GM"]) == set(COLUMNS)
    assert len(TABLES) == 4


def test_hand_built_gm_has_known_statistics() -> None:
    found = measured(handmade_gm((2, 2)))
    assert found.mean(("edge", "sharpener_temps")) == pytest.approx(1)
    by_layer = found.by_layer["edge", "n2_edge_factor_temps"]
    # The two heads that fetch from middle cells switch their edge factor off.
    assert by_layer[0] == pytest.approx(4, rel=1e-4)
    assert by_layer[3] == pytest.approx(4 * 6 / 8, rel=1e-4)
    labour = found.labour[0, ("node", "node_factors")].shares()
    assert labour["digit"] == pytest.approx(1, abs=1e-6)
    assert found.labour[0, ("node", "edge_factors")].shares()["geometry"] == pytest.approx(1)


def test_detectors_look_at_the_first_puzzles_only() -> None:
    assert measured(small_model(), parts=4, detect=2).detected == 2
    found = measured(small_model(), detect=0)
    assert found.detected == 0
    assert not found.edges
    assert not found.labour


def test_digits_tell_given_from_inferred() -> None:
    tokens, answers = boards()
    labels = contents(board_batch())
    assert ((labels % 2 == 1) == (tokens > 0).numpy()).all()
    assert (labels // 2 == answers.numpy()).all()


def test_spread() -> None:
    assert Spread.of([1.0]) == Spread(1.0, None, 1)
    both = Spread.of([1.0, 3.0])
    assert (both.mean, both.deviation, both.count) == (2.0, pytest.approx(2**0.5), 2)
    two = [measured(small_model(num_layers=n)) for n in (1, 2)]
    column = ("node", "weights")
    found = spread(two, column)
    assert found is not None
    assert found.count == 2
    assert [value.count for value in spread_by_layer(two, column).values()] == [2, 1]
    assert spread([measured(small_model(**TRANSFORMER))], ("edge", "address_ins")) is None


def test_detectors_over_seeds() -> None:
    """The hand-built GM doubles its reach and keeps a self-edge; two seeds show their range."""
    head, built = list(BY_SEED), measured(handmade_gm((2, 2)))
    rows = [dict(zip(["layer", *head], row)) for row in over_seeds([built])]
    assert [row["farthest"] for row in rows[:2]] == ["2.00", "3.00"]  # all of a line of four
    assert all(row["self slots"] == "1.00" for row in rows)
    assert rows[1]["box"] == "1.00"
    both = over_seeds([built, measured(small_model())])
    assert "–" in both[0][1 + head.index("row")]
    assert over_seeds([measured(small_model(**TRANSFORMER))]) == []


def test_reports() -> None:
    gm = tuple(measured(small_model()) for _ in range(2))
    groups = [
        Group("gm", "4x4 board, 2 layers, 7 steps", (0, 1), gm, (4, 4), (2, 2)),
        Group("transformer", "4x4 board", (0,), (measured(small_model(**TRANSFORMER)),), (4, 4)),
    ]
    text = statistics_markdown(groups)
    assert "| *GM (paper)* | 1.050 | 1.098 | 10 |" in text
    assert "± 0.000 | 2 | 4x4 board, 2 layers, 7 steps |" in text
    assert "| transformer | – | – | – | – |" in text
    assert "| transformer | – | – | 1 |" not in text  # no edges: no row in an all-edge table
    assert "### By layer over seeds: gm" in text
    assert "### Regions: gm" in text
    assert "**Regions in any slot**" in text
    assert "### Regions: transformer" not in text
    data = json.loads(json.dumps(plain(groups), allow_nan=False))
    first, second = data["conditions"]
    assert first["kind"] == "GM"
    assert second["kind"] == "Transformer"
    assert first["means"]["node.weights"]["seeds"] == 2
    assert "edge.address_ins" not in second["means"]
    assert len(first["edges"]) == 2 * 3 * 6  # layers, places, slots
    assert set(first["edges"][0]["cells"]) == {"r2c2", "r2c3", "r3c2"}
    assert data["paper"]["GM"]["edge.n2_weights"] == 0.368


def test_labour_over_seeds() -> None:
    built, other = measured(handmade_gm((2, 2))), measured(small_model(num_layers=6))
    alone = labour_text([Group("gm", "", (0,), (built,))])
    both = labour_text([Group("gm", "", (0, 1), (built, other))])
    shares = [
        found.labour[0, ("node", "edge_factors")].shares()["geometry"] for found in (built, other)
    ]
    assert " (" not in alone.split("| l0 |")[1]
    assert f"{np.mean(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})" in both


CORE = {"core_layers": 2, "rounds": 3}


def test_a_core_is_measured_in_its_first_and_its_last_round() -> None:
    model = small_model(1, **CORE)
    found, made = measured(model), record(model, boards()[0], half=False)
    assert list(found.core) == [1, 3]
    assert list(measured(model, rounds=1).core) == [1]
    assert list(measured(model, rounds=5).core) == [1, 5]
    assert set(found.by_layer["node", "weights"]) == {0}  # the layers alone
    for number, part in found.core.items():
        for (sublayer, name), layers in part.by_layer.items():
            assert set(layers) == {0, 1}
            for layer, value in layers.items():
                path = f"layers.{layer}.{sublayer}.0.{name}"
                of_round = f"rounds.{number - 1}.{path}"
                whole = made[of_round if of_round in made else f"core.{path}"]
                assert value == pytest.approx(direct(whole, name), rel=1e-4, abs=1e-6)
        assert ("node", "address_ins") in part.by_layer  # edges that stay
        assert ("edge", "n2_weights") not in part.by_layer
        assert set(part.mechanisms.experts) == {(0, "node"), (1, "node")}
        assert (1, ("node", "edge_factors")) in part.labour
    assert not measured(small_model()).core


def test_the_tables_name_the_core() -> None:
    stays, refers = (measured(small_model(1, **CORE, core_edge_sublayers=n)) for n in (0, 2))
    text = statistics_markdown([Group("gm", "4x4 board", (0,), (stays,), (4, 4), (2, 2))])
    assert "the core has rows of its own, of its first and its last round" in text
    assert "| gm, core in rounds 1 and 3 | – | " in text  # sharpeners of edges that stay
    assert "| gm, core in round 3 | – | – | – | – | " in text  # entropies
    assert text.count("| core l1, round 3 |") == 3  # regions that are read, experts, labour
    assert "### Self-referral" in text
    assert "core l" not in text.split("### Self-referral")[1].split("###")[0]
    other = statistics_markdown([Group("gm", "4x4 board", (0,), (refers,), (4, 4), (2, 2))])
    assert "| core l0, round 1 |" in other.split("### Self-referral")[1].split("###")[0]
    assert "| core l0, round 3 |" in other.split("address-out")[1]
    assert "| gm, core in round 1 | 1." in other or "| gm, core in round 1 | 0." in other
    plainly = statistics_markdown([Group("gm", "", (0,), (measured(small_model()),))])
    assert "core" not in plainly
    data = plain([Group("gm", "4x4 board", (0,), (refers,), (4, 4), (2, 2))])
    core = json.loads(json.dumps(data, allow_nan=False))["conditions"][0]["core"]
    assert list(core) == ["1", "3"]
    assert set(core["3"]["by_layer"]["node.weights"]) == {"0", "1"}
    assert len(core["3"]["reading"]["1"]["slots"]) == 6


def test_errors() -> None:
    with pytest.raises(ConfigError, match="no puzzles"):
        collect_statistics(small_model(), [])


def test_a_causal_sequence_is_measured_by_what_its_positions_see() -> None:
    even = torch.ones(4, 4).tril() / torch.arange(1, 5).unsqueeze(-1)  # n m: over all so far
    rows = torch.tensor([0.0, 1.0, 1.0, 1.0])  # the first position has no choice
    for name, shape, expected in (
        ("weights", (1, 1, 4, 4), rows),  # b h n m
        ("address_ins", (1, 4, 1, 4), rows.unsqueeze(-1)),  # b n k m
    ):
        found = entropies(name, even.view(shape), past(name, even.view(shape)))
        torch.testing.assert_close(found[0].squeeze(0), expected)
    task = make_task(RecallConfig(length=12, pairs=4, test_pairs=5, keys=6))
    for kind in ("joint", "preaggregated"):
        config = ModelConfig(num_layers=1, d_node=8, num_heads=2, referral=kind)
        model = GraphMachine(config, task.spec)
        whole = collect_statistics(model, [task.batch(0, 4, 0)])
        assert whole.by_layer.keys() == set(COLUMNS)
        means = {name: whole.mean((place, name)) for place, name in COLUMNS}
        entropy = [mean for name, mean in means.items() if not name.endswith("_temps")]
        assert all(mean is not None and 0 <= mean <= 1 for mean in entropy)
        sums = whole.edges[0, "edge:in"]
        best = best_regions(sums.region_scores(), list(sums.regions))
        assert [name for name, _ in best[:4]] == ["self", "1 back", "2 back", "3 back"]
        # A slot that leads further back than the sequence goes is empty: it has no reach.
        assert np.isnan(sums.mean_reach()[6, :6]).all()
        assert (sums.mean_reach()[6, 6:] == 1).all()
        assert np.isnan(sums.mean_reach()[7]).all()  # the last one is empty everywhere


def test_graphs_that_are_given_are_measured_without_their_padding() -> None:
    """Two graphs of one size and a smaller one: together, padded, as each alone."""
    task = make_task(PointersConfig(nodes=7, train_hops=2, test_hops=3, name_width=0))
    small = make_task(PointersConfig(nodes=5, train_hops=2, test_hops=3, name_width=0))
    parts = [task.batch(0, 2, 0), small.batch(0, 1, 0)]
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), task.spec)
    padded = Batch.join(parts)
    assert padded.node_mask is not None
    assert [one.num_nodes for one in padded.unpadded()] == [7, 7, 5]
    assert [one.where.shape[1] for one in padded.unpadded()] == [7, 7, 5]
    together, alone = collect_statistics(model, [padded]), collect_statistics(model, parts)
    assert together.puzzles == 3
    assert not together.edges  # no grid, no regions
    assert together.by_layer.keys() == set(COLUMNS)
    for column, layers in together.by_layer.items():
        assert layers == pytest.approx(alone.by_layer[column]), column


def test_boards_whose_graphs_are_given_have_regions_and_reach() -> None:
    task = make_task(JigsawConfig(side=4, puzzles=20))
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), task.spec)
    found = collect_statistics(model, task.split_batches("train", 8, 8))
    sums = found.edges[0, "edge:in"]
    assert "row" in sums.regions
    assert np.nanmax(sums.mean_reach()) == 1  # the four neighbours
