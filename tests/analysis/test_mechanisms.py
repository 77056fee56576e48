"""Self-referral, experts, rounds and reading: by hand, on the hand-built GM, as text."""

import math

import numpy as np
import pytest
import torch

from graph_machine.lab.analysis.mechanisms import (
    ALIKE,
    ExpertSums,
    Place,
    ReadSums,
    RoundSums,
    SelfSums,
)
from graph_machine.lab.analysis.regions import EdgeSums, make_regions
from graph_machine.lab.analysis.statistics import Statistics, collect_statistics
from graph_machine.lab.analysis.statistics_data import best_heads, mechanisms_data, reading_data
from graph_machine.lab.analysis.statistics_text import (
    experts_text,
    heads_text,
    mechanisms_text,
    reading_text,
    rounds_text,
    self_text,
)
from graph_machine.lab.records import record
from graph_machine.lab.records.drawing import undone
from graph_machine.models.handmade import handmade_gm
from support.recordings import TRANSFORMER, board_batch, boards, small_model


def measured(model) -> Statistics:
    whole = board_batch()
    return collect_statistics(model, [whole.part(0, 2), whole.part(2, 4)], box=(2, 2))


def softmax(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).double().softmax(dim=-1).numpy()


def test_self_referral_of_a_recording() -> None:
    model = small_model()
    found, made = measured(model), record(model, boards()[0], half=False)
    for layer in (0, 1):
        part = f"layers.{layer}.edge.0."
        own = np.diagonal(made[part + "n2_weights"], axis1=2, axis2=3)
        edge = np.diagonal(softmax(made[part + "n2_edge_factors"]), axis1=2, axis2=3)
        edges = np.diagonal(made[part + "address_ins"], axis1=1, axis2=3)  # sample slot source
        bare = (own > 0.5) & (edges.max(axis=1, keepdims=True) <= 0.5)
        row = found.mechanisms.own[layer].row()
        assert row["n2 weight on source"] == pytest.approx(own.mean(), rel=1e-4)
        assert row["edge factor on source"] == pytest.approx(edge.mean(), rel=1e-4)
        assert row["self-referring"] == pytest.approx((own > 0.5).mean())
        assert found.mechanisms.own[layer].bare == bare.sum()


def test_self_referral_without_self_edges() -> None:
    sums = SelfSums()
    weights = torch.eye(4).expand(1, 2, 4, 4).clone()
    weights[0, 1] = weights[0, 1].roll(1, dims=-1)  # the second head refers to others
    factors = 100 * torch.eye(4).expand(1, 2, 4, 4)
    sums.add(weights, factors, torch.tensor([[True, True, False, False]]))
    assert sums.row() == pytest.approx(
        {
            "n2 weight on source": 0.5,
            "edge factor on source": 1.0,
            "self-referring": 0.5,
            "without self-edge": 0.5,
            "edge factor there": 1.0,
        }
    )
    none = SelfSums()
    none.add(torch.full((1, 1, 4, 4), 0.25), None, torch.ones(1, 4, dtype=torch.bool))
    assert math.isnan(none.row()["without self-edge"])


def test_who_decides() -> None:
    flat, sharp = torch.zeros(1, 1, 1, 4), torch.tensor([[[[9.0, 0, 0, 0]]]])
    other = torch.tensor([[[[0.0, 0, 5, 5]]]])
    for edge, node, name in (
        (sharp, flat, "edge alone"),
        (flat, sharp, "node alone"),
        (flat, flat, "either"),
        (sharp, sharp, "either"),
        (torch.tensor([[[[5.0, 0, 5, 0]]]]), other, "both"),
    ):
        sums = ExpertSums()
        sums.add(edge, node)
        assert sums.row()[name] == 1, name


def test_experts_of_a_recording() -> None:
    model = small_model()
    found, made = measured(model), record(model, boards()[0], half=False)
    part = "layers.1.node.0."
    weights = made[part + "weights"]
    alone = [softmax(made[part + f"{kind}_factors"]) for kind in ("edge", "node")]
    close = [np.abs(weights - one).sum(axis=-1) / 2 < ALIKE for one in alone]
    row = found.mechanisms.experts[Place(1, "node")].row()
    assert row["edge alone"] == pytest.approx((close[0] & ~close[1]).mean())
    assert row["both"] == pytest.approx((~close[0] & ~close[1]).mean())
    assert not measured(small_model(**TRANSFORMER)).mechanisms.experts


def test_the_same_head_in_every_sample() -> None:
    found = measured(handmade_gm((2, 2)))
    layer, same = best_heads(found)["box"]
    assert (layer, same.head, same.samples, same.cells) == (1, 5, 4, 1.0)
    assert same.overlap == pytest.approx(1, abs=0.02)
    text = heads_text("handmade", [found])
    assert "| box | l1r5 | 1.00 | 4 of 4 | 100% |" in text


def test_heads_that_take_turns() -> None:
    regions = make_regions((2, 2))
    sums = EdgeSums(regions, np.zeros((4, 4), dtype=int))
    rows = regions["row"] / 2.0
    flat = np.full((4, 4), 0.25)
    first, second = np.stack([rows, flat], axis=1), np.stack([flat, rows], axis=1)
    sums.add(np.stack([first, first, second]))
    same = sums.same_head("row")
    assert (same.head, same.samples) == (0, 2)
    assert same.cells == pytest.approx(2 / 3)


def test_rounds() -> None:
    answers = np.array([[1, 1, 0], [2, 1, 0], [1, 1, 3], [1, 2, 3]])
    solution = np.array([1, 2, 3])
    assert undone(answers, solution).tolist() == [True, False, False]
    sums = RoundSums()
    where = np.array([[True, True, True], [True, True, False]])
    sums.add(np.stack([answers, answers]), np.stack([solution, solution]), where)
    assert sums.cells == 5
    assert sums.right.tolist() == [2, 0, 3, 5]
    assert sums.solved.tolist() == [0, 0, 0, 2]
    assert sums.decided.tolist() == [0, 0, 3, 2]
    assert sums.lost.tolist() == [0, 2, 0, 0]
    assert (sums.ever_undone, sums.restored) == (2, 2)
    text = rounds_text("x", [Statistics(rounds=sums)])
    assert "Ever undone: 2 places (40.0%), of which 2 are right again" in text
    assert "| 4 | 2 | 100.0% | 100.0% | 0 | 100.0% |" in text


def test_rounds_of_a_recurrent_model() -> None:
    model = small_model(1, core_layers=1, rounds=3)
    found = measured(model)
    made = record(model, board_batch(), half=False)
    assert found.rounds is not None
    answers, where = made.inputs("round_answers"), board_batch().where.numpy()
    assert answers is not None
    right = (answers == board_batch().answers.numpy()[:, None]) & where[:, None]
    assert found.rounds.right.tolist() == right.sum(axis=(0, 2)).tolist()
    assert found.rounds.decided.sum() == found.rounds.cells == where.sum()
    assert measured(small_model()).rounds is None


def test_text_and_data() -> None:
    found = measured(small_model(1, core_layers=1, rounds=2))
    text = "\n".join(mechanisms_text("gm", [found, found]))
    for title in ("Rounds", "Self-referral", "The same head across samples", "Experts"):
        assert f"### {title}: gm" in text
    data = mechanisms_data(found)
    assert data["rounds"]["samples"] == 4
    assert set(data["self_referral"]["0"]) == set(found.mechanisms.own[0].row())
    transformer = [measured(small_model(**TRANSFORMER))]
    for part in (self_text, heads_text, experts_text, rounds_text):
        assert part("t", transformer) == ""


CORE = {"core_layers": 2, "rounds": 3}


def test_known_weights() -> None:
    regions = make_regions((4, 4), (2, 2))
    sums = ReadSums(regions)
    rows, flat = regions["row"] / 4.0, np.full((16, 16), 1 / 16)
    sums.add("weights", np.stack([rows, flat])[None])
    sums.add("e1_weights", np.broadcast_to([[[1.0, 0.0]], [[0.5, 0.5]]], (2, 16, 2))[None])
    shares, masses = sums.slot_shares(), sums.masses()
    assert shares is not None
    assert masses is not None
    assert shares.tolist() == [0.75, 0.25]
    assert dict(zip(sums.names, masses.tolist()))["row"] == pytest.approx([1, 0.25])
    assert masses[:, 1] == pytest.approx(sums.even())


def test_the_core_of_a_recording() -> None:
    model = small_model(1, **CORE)
    found, made = measured(model), record(model, boards()[0], half=False)
    sums = found.core[3].reading[1]
    shares, masses = sums.slot_shares(), sums.masses()
    part = "rounds.2.layers.1.node.0."
    assert shares == pytest.approx(made[part + "e1_weights"].mean(axis=(0, 1, 2)), rel=1e-4)
    inside = (made[part + "weights"] * make_regions((4, 4), (2, 2))["box"]).sum(axis=-1)
    assert masses is not None
    assert masses[sums.names.index("box")] == pytest.approx(inside.mean(axis=(0, 2)), rel=1e-4)
    assert not found.reading  # of the core only


def test_reading_as_text_and_data() -> None:
    found = measured(small_model(1, **CORE))
    text = reading_text("gm", [found])
    assert text.count("| core l0: edges |") == 1  # the same in every round
    assert "| core l1: read in round 3 | 0." in text
    assert "| even | 0.06 | 0.25 | 0.25 | 0.25 | 0.50 |" in text
    assert set(reading_data(found.core[1])["0"]["regions"]) == {
        "self", "row", "column", "box", "cross+box",
    }  # fmt: skip
    refers = reading_text("gm", [measured(small_model(1, **CORE, core_edge_sublayers=2))])
    assert "| core l0: edges, round 3 |" in refers
    # A Transformer's core has no edges to read.
    plain = reading_text("t", [measured(small_model(1, **CORE, **TRANSFORMER))])
    assert "| core l0, round 3 |" in plain
    assert "| slot |" not in plain
    assert reading_text("gm", [measured(small_model())]) == ""
