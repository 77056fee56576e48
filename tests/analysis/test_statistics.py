"""Statistics: streamed sums equal what a whole recording says, and reports show them."""

import json
from functools import cache

import numpy as np
import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.analysis.detectors import ALIKE
from graph_machine.lab.analysis.regions import make_regions
from graph_machine.lab.analysis.report import BY_SEED, plain, statistics_markdown
from graph_machine.lab.analysis.statistics import (
    PAPER,
    QUANTITIES,
    TABLES,
    Group,
    Statistics,
    collect_statistics,
    contents,
    entropies,
    past,
    statistics_frame,
)
from graph_machine.lab.config import JigsawConfig, PointersConfig, RecallConfig
from graph_machine.lab.records import Record, record
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm
from support.recordings import TRANSFORMER, board_batch, boards, small_model

CORE = {"core_layers": 2, "rounds": 3}
KINDS = {
    "gm": {},
    "transformer": TRANSFORMER,
    "core": {"num_layers": 1, **CORE},
    "referring core": {"num_layers": 1, **CORE, "core_edge_sublayers": 2},
    "transformer core": {"num_layers": 1, **CORE, **TRANSFORMER},
    "six": {"num_layers": 6},
}


def measure(model: GraphMachine, parts: int = 2, **choice) -> Statistics:
    whole = board_batch()
    size = len(whole) // parts
    batches = [whole[start : start + size] for start in range(0, len(whole), size)]
    return collect_statistics(model, batches, box=(2, 2), **choice)


@cache
def measured(kind: str) -> Statistics:
    return measure(handmade_gm((2, 2)) if kind == "handmade" else small_model(**KINDS[kind]))


@cache
def recorded(kind: str) -> Record:
    return record(small_model(**KINDS[kind]), board_batch(), half=False)


def quantities(found: Statistics, number: int = 0) -> set[str]:
    return {value.quantity for value in found.values if value.round == number}


def slots(found: Statistics, quantity: str, layer: int, number: int = 0) -> list[float]:
    key = (number, layer, quantity)
    return [v.value for v in found.values if (v.round, v.layer, v.quantity) == key]


def report(*kinds: str, condition: str = "gm") -> str:
    found = tuple(measured(kind) for kind in kinds)
    group = Group(condition, "4x4 board", tuple(range(len(kinds))), found, (4, 4), (2, 2))
    return statistics_markdown([group])


def part(text: str, title: str) -> str:
    """One section of a report; empty if it has none."""
    return text.partition(f"### {title}")[2].partition("###")[0]


def softmax(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).double().softmax(dim=-1).numpy()


def direct(values: np.ndarray, name: str) -> float:
    """A column's mean, written out."""
    if name.endswith("_temps"):
        return float(values.mean())
    if name == "e2_factors":
        values = values.reshape(*values.shape[:-2], -1)
    values = softmax(values) if name.endswith("_factors") else values.astype(np.float64)
    entropy = -(values * np.log(np.maximum(values, 1e-300))).sum(axis=-1)
    return float(entropy.mean() / np.log(values.shape[-1]))


@pytest.mark.parametrize("parts", [1, 3])
def test_streamed_means_are_those_of_a_recording(parts: int) -> None:
    found, made = measure(small_model(), parts), recorded("gm")
    assert found.puzzles == 4
    assert quantities(found) >= QUANTITIES
    for quantity in QUANTITIES:
        sublayer, name = quantity.split(".")
        layers = found.by_layer(quantity)
        for layer, value in layers.items():
            whole = made[f"layers.{layer}.{sublayer}.0.{name}"]
            assert value == pytest.approx(direct(whole, name), rel=1e-4, abs=1e-6)
        assert found.mean(quantity) == pytest.approx(sum(layers.values()) / 2)


def test_a_transformer_has_what_the_paper_gives_for_it() -> None:
    found = measured("transformer")
    assert quantities(found) & QUANTITIES == set(PAPER["Transformer"])
    assert found.mean("edge.address_ins") is None
    assert not any(name.startswith(("edge", "self", "experts")) for name in quantities(found))
    # The node factor is the weight: there is no other expert.
    assert found.mean("node.node_factors") == pytest.approx(found.mean("node.weights"))
    assert set(PAPER["GM"]) == QUANTITIES
    assert len(TABLES) == 4


def test_hand_built_gm_has_known_statistics() -> None:
    found = measured("handmade")
    assert found.mean("edge.sharpener_temps") == pytest.approx(1)
    by_layer = found.by_layer("edge.n2_edge_factor_temps")
    # The two heads that fetch from middle cells switch their edge factor off.
    assert by_layer[0] == pytest.approx(4, rel=1e-4)
    assert by_layer[3] == pytest.approx(4 * 6 / 8, rel=1e-4)
    assert found.by_layer("labour.node.node_factors.digit")[0] == pytest.approx(1, abs=1e-6)
    assert found.by_layer("labour.node.edge_factors.geometry")[0] == pytest.approx(1)
    # It doubles its reach and keeps a self-edge.
    far = found.by_layer("edge:out.farthest")
    assert (far[0], far[1]) == (2, 3)  # all of a line of four
    assert set(found.by_layer("edge:out.self slots").values()) == {1.0}
    assert found.by_layer("edge:out.box")[1] == pytest.approx(1)


def test_detectors_look_at_the_first_puzzles_only() -> None:
    assert measure(small_model(), parts=4, detect=2).detected == 2
    found = measure(small_model(), detect=0)
    assert found.detected == 0
    assert quantities(found) == QUANTITIES
    with pytest.raises(ConfigError, match="puzzles"):
        collect_statistics(small_model(), [])


def test_self_referral_and_experts_of_a_recording() -> None:
    found, made = measured("gm"), recorded("gm")
    for layer in (0, 1):
        start = f"layers.{layer}.edge.0."
        own = np.diagonal(made[start + "n2_weights"], axis1=2, axis2=3)
        edge = np.diagonal(softmax(made[start + "n2_edge_factors"]), axis1=2, axis2=3)
        edges = np.diagonal(made[start + "address_ins"], axis1=1, axis2=3)  # sample slot source
        bare = (own > 0.5) & (edges.max(axis=1, keepdims=True) <= 0.5)
        expected = {
            "n2 weight on source": own.mean(),
            "edge factor on source": edge.mean(),
            "self-referring": (own > 0.5).mean(),
            "without self-edge": bare.sum() / (own > 0.5).sum() if (own > 0.5).any() else np.nan,
        }
        for name, value in expected.items():
            measured_value = found.by_layer(f"self.{name}")[layer]
            assert measured_value == pytest.approx(value, rel=1e-4, nan_ok=True)
        start = f"layers.{layer}.node.0."
        alone = [softmax(made[start + f"{kind}_factors"]) for kind in ("edge", "node")]
        by_edge, by_node = (
            np.abs(made[start + "weights"] - one).sum(axis=-1) / 2 < ALIKE for one in alone
        )
        shares = {"edge alone": by_edge & ~by_node, "both": ~by_edge & ~by_node}
        for name, where in shares.items():
            assert found.by_layer(f"experts.node.{name}")[layer] == pytest.approx(where.mean())


def test_contents_separate_given_from_inferred() -> None:
    tokens, answers = boards()
    labels = contents(board_batch())
    assert ((labels % 2 == 1) == (tokens > 0).numpy()).all()
    assert (labels // 2 == answers.numpy()).all()


def test_a_core_is_measured_in_its_first_and_its_last_round() -> None:
    found, made = measured("core"), recorded("core")
    once = measure(small_model(1, **CORE), rounds=1)
    assert {v.round for v in once.values if v.layer >= 0} == {0, 1}
    assert {v.round for v in found.values if v.layer >= 0} == {0, 1, 3}
    assert set(found.by_layer("node.weights")) == {0}  # the layers alone
    for number in (1, 3):
        here = quantities(found, number)
        assert {"node.address_ins", "labour.node.edge_factors.digit"} <= here  # edges that stay
        assert not here & {"edge.n2_weights", "experts.edge.both"}
        for quantity in here & QUANTITIES:
            sublayer, name = quantity.split(".")
            layers = found.by_layer(quantity, number)
            assert set(layers) == {0, 1}
            for layer, value in layers.items():
                path = f"layers.{layer}.{sublayer}.0.{name}"
                of_round = f"rounds.{number - 1}.{path}"
                whole = made[of_round if of_round in made else f"core.{path}"]
                assert value == pytest.approx(direct(whole, name), rel=1e-4, abs=1e-6)
    start = "rounds.2.layers.1.node.0."
    shares = slots(found, "reading.slots", 1, 3)
    assert shares == pytest.approx(made[start + "e1_weights"].mean(axis=(0, 1, 2)), rel=1e-4)
    inside = (made[start + "weights"] * make_regions((4, 4), (2, 2))["box"]).sum(axis=-1)
    assert slots(found, "reading.box", 1, 3) == pytest.approx(inside.mean(axis=(0, 2)), rel=1e-4)
    assert "reading.slots" not in quantities(found)  # of the core only
    answers, where = made.inputs("round_answers"), board_batch().where.numpy()
    assert answers is not None
    right = (answers == board_batch().answers.numpy()[:, None]) & where[:, None]
    of_rounds = {v.round: v.value for v in found.values if v.quantity == "rounds.right"}
    assert [*of_rounds.values()] == right.sum(axis=(0, 2)).tolist()
    assert {v.round for v in measured("gm").values} == {0}


def test_reports() -> None:
    gm = (measured("gm"), measured("gm"))
    groups = [
        Group("gm", "4x4 board, 2 layers, 7 steps", (0, 1), gm, (4, 4), (2, 2)),
        Group("transformer", "4x4 board", (0,), (measured("transformer"),), (4, 4)),
    ]
    text = statistics_markdown(groups)
    assert "| *GM (paper)* | 1.050 | 1.098 | 10 |" in text
    assert "± 0.000 | 2 | 4x4 board, 2 layers, 7 steps |" in text
    assert "| transformer | – | – | – | – |" in text
    assert "| transformer | – | – | 1 |" not in text  # no edges: no row in an all-edge table
    titles = ("By layer over seeds", "Regions", "Self-referral", "The same head across samples")
    for title in (*titles, "Experts", "Slots"):
        assert f"### {title}: gm" in text
        assert f"### {title}: transformer" not in text
    assert "**Regions in any slot**" in text
    assert "core" not in text
    data = json.loads(json.dumps(plain(groups), allow_nan=False))
    first, second = data["conditions"]
    assert (first["kind"], second["kind"]) == ("GM", "Transformer")
    assert data["paper"]["GM"]["edge.n2_weights"] == 0.368
    rows = [dict(zip(first["columns"], row, strict=True)) for row in first["rows"]]
    weights = [row["value"] for row in rows if row["quantity"] == "node.weights"]
    assert weights == 2 * [*gm[0].by_layer("node.weights").values()]
    reach = [row for row in rows if row["quantity"].endswith(".slot reach")]
    assert len(reach) == 2 * 3 * 6  # layers, places, slots, of the first seed
    cells = {row["quantity"].split(": ")[0] for row in rows if ".at " in row["quantity"]}
    assert {cell[-4:] for cell in cells} == {"r2c2", "r2c3", "r3c2"}
    assert not any("edge" in row[4] for row in second["rows"])
    frame = statistics_frame(groups)
    assert frame.groupby("condition")["model"].max().to_dict() == {"gm": 1, "transformer": 0}


def test_seeds_in_a_report() -> None:
    found = [measured("handmade"), measured("six")]
    alone, both = report("handmade"), report("handmade", "six")
    row = part(both, "By layer over seeds").split("| l1 |")[1].split("|")[BY_SEED.index("row")]
    means = [one.by_layer("edge:out.row")[1] for one in found]
    assert row.strip() == f"{np.mean(means):.2f} ({min(means):.2f}–{max(means):.2f})"
    shares = [one.by_layer("labour.node.edge_factors.geometry")[0] for one in found]
    labour = part(both, "Division of labour")
    assert f"{np.mean(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})" in labour
    assert " (" not in part(alone, "Division of labour").split("| l0 |")[1]
    assert "| box | l1r5 | 1.00 | 4 of 4 | 100% |" in part(alone, "The same head")


def test_the_tables_name_the_core() -> None:
    text = report("core")
    assert "the core has rows of its own, of its first and its last round" in text
    assert "| gm, core in rounds 1 and 3 | – | " in text  # sharpeners of edges that stay
    assert "| gm, core in round 3 | – | – | – | – | " in text  # entropies
    assert text.count("| core l1, round 3 |") == 4  # regions read, experts, slots, labour
    own = part(text, "Self-referral")
    assert "| l0 |" in own
    assert "core l" not in own
    other = report("referring core")
    assert "| core l0, round 1 |" in part(other, "Self-referral")
    assert "| core l0, round 3 |" in other.split("address-out")[1]
    assert "| gm, core in round 1 | 1." in other or "| gm, core in round 1 | 0." in other


def test_what_the_core_reads() -> None:
    text = part(report("core"), "What the core reads")
    assert text.count("| core l0: edges |") == 1  # the same in every round
    assert "| core l1: read in round 3 | 0." in text
    assert "| attention inside | self | row | column | box | cross+box |" in text
    assert "| even | 0.06 | 0.25 | 0.25 | 0.25 | 0.50 |" in text
    assert "| core l0: edges, round 3 |" in part(report("referring core"), "What the core reads")
    # A Transformer's core has no edges to read.
    plainly = part(report("transformer core"), "What the core reads")
    assert "| core l0, round 3 |" in plainly
    assert "| slot |" not in plainly
    assert "4 examples with" in part(report("core"), "Rounds")


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
        whole = collect_statistics(GraphMachine(config, task.spec), [task.batch(0, 4, 0)])
        for quantity in QUANTITIES:
            mean = whole.mean(quantity)
            assert mean is not None
            assert quantity.endswith("_temps") or 0 <= mean <= 1
        for slot, name in enumerate(("self", "1 back", "2 back", "3 back")):
            assert slots(whole, f"edge:in.overlap {name}", 0)[slot] > 0.99
        # A slot that leads further back than the sequence goes is empty: it has no reach.
        reach = slots(whole, "edge:in.slot reach", 0)
        assert reach[6] == 1
        assert np.isnan(reach[7])  # the last one is empty everywhere


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
    assert not any(":" in quantity for quantity in quantities(together))  # no grid, no regions
    for quantity in QUANTITIES:
        assert together.by_layer(quantity) == pytest.approx(alone.by_layer(quantity)), quantity


def test_boards_whose_graphs_are_given_have_regions_and_reach() -> None:
    task = make_task(JigsawConfig(side=4, puzzles=20))
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), task.spec)
    found = collect_statistics(model, task.split_batches("train", 8, 8))
    assert "edge:in.row" in quantities(found)
    assert found.by_layer("edge:in.farthest") == {0: 1.0}  # the four neighbours
