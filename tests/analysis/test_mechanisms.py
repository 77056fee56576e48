"""Self-referral, heads, experts and rounds: streamed sums against recordings and known cases."""

import math

import numpy as np
import pytest
import torch

from graph_machine.analysis.mechanisms import ALIKE, ExpertSums, Place, RoundSums, SelfSums
from graph_machine.analysis.mechanisms_text import (
    best_heads,
    experts_text,
    heads_text,
    mechanisms_data,
    mechanisms_text,
    rounds_text,
    self_text,
)
from graph_machine.analysis.regions import EdgeSums, make_regions
from graph_machine.analysis.statistics import Statistics, collect_statistics
from graph_machine.models.handmade import handmade_gm
from graph_machine.records import record
from graph_machine.records.rounds import undone
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
    nobody = SelfSums()
    nobody.add(torch.full((1, 1, 4, 4), 0.25), None, torch.ones(1, 4, dtype=torch.bool))
    assert math.isnan(nobody.row()["without self-edge"])


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
