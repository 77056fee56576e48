"""Detectors: on known weights, and on the hand-built GM."""

import numpy as np
import pytest
import torch

from graph_machine.graphs import grid_graph
from graph_machine.lab.analysis.detectors import (
    EdgeSums,
    FactorSums,
    Means,
    RoundSums,
    Shares,
    expert_shares,
    floor_shares,
    regions_read,
    self_referral,
    slot_shares,
    slots_read,
)
from graph_machine.lab.analysis.regions import hop_distances, make_regions
from graph_machine.lab.records.drawing import lost
from graph_machine.models.handmade import SLOTS
from support.recordings import handmade_record

NOWHERE = np.zeros((4, 4), dtype=int)


def means(*found: Shares) -> dict:
    sums = Means()
    for one in found:
        sums.add(one)
    return sums.values()


@pytest.mark.parametrize("box", [(2, 2), (2, 3), (3, 3)], ids=str)
def test_edges_of_the_hand_built_gm(box: tuple[int, int]) -> None:
    made = handmade_record(box)
    side = box[0] * box[1]
    regions = make_regions((side, side), box)
    hops = hop_distances(grid_graph(side, side, 8).targets.numpy())
    best, reaches = {}, []
    for layer in range(6):
        sums = EdgeSums(regions, hops)
        addresses = made[f"layers.{layer}.edge.0.address_outs"]
        sums.add(addresses[:1])
        sums.add(addresses[1:])
        found = sums.values()
        for number, slot in enumerate(SLOTS):
            score, name = max((found[f"overlap {name}"][number], name) for name in regions)
            best[layer, slot] = name, score
        reaches.append(found["farthest"])
        assert np.nanmax(sums.adaptivity()) < 1e-3
        assert (found["box"] > 0.99) == (layer >= 1)
        assert found["row"] > 0.94 or layer < 3
    assert reaches[:3] == [min(2, side - 1), min(4, side - 1), min(8, side - 1)]
    assert best[1, "box"] == ("box", pytest.approx(1, abs=1e-3))
    for slot, region in (("row", "row"), ("col", "column"), ("self", "self"), ("box", "box")):
        name, score = best[3, slot]
        assert name == region
        assert score > 0.94
    assert best[4, "up"][0] == "cross"
    assert best[5, "down"][0] == "cross+box"
    assert best[5, "down"][1] > 0.85


def test_directions_that_no_place_has() -> None:
    row = make_regions((1, 4))
    sums = EdgeSums(row, hop_distances(grid_graph(1, 4, num_edges=5).targets.numpy()))
    sums.add(np.full((2, 4, 3, 4), 0.25))
    found = sums.values()
    assert not any(np.isnan(found[name]) for name in row)
    assert found["overlap row"] == pytest.approx([1.0] * 3)


def test_adaptivity() -> None:
    one = EdgeSums(make_regions((2, 2)), NOWHERE)
    changing = np.stack([np.eye(4)[(np.arange(4) + shift) % 4] for shift in range(4)])
    addresses = np.stack([changing, np.eye(4)[None].repeat(4, axis=0)], axis=2)  # b n k m
    one.add(addresses[:1])
    assert np.isnan(one.adaptivity()).all()
    one.add(addresses[1:])
    adaptivity = one.adaptivity()
    np.testing.assert_allclose(adaptivity[0], 0.75)  # uniform over the four targets
    np.testing.assert_allclose(adaptivity[1], 0, atol=1e-12)


def test_heads_that_take_turns() -> None:
    regions = make_regions((2, 2))
    sums = EdgeSums(regions, NOWHERE)
    rows, flat = regions["row"] / 2.0, np.full((4, 4), 0.25)
    first, second = np.stack([rows, flat], axis=1), np.stack([flat, rows], axis=1)
    sums.add(np.stack([first, first, second]))
    found = sums.values()
    assert (found["row head"], found["row head samples"]) == (0, 2)
    assert found["row head cells"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("kind", "expected"), [("place", (1, 0)), ("digit", (0, 1))])
def test_division_of_labour(kind: str, expected: tuple[float, float]) -> None:
    generator = torch.manual_seed(1)
    digits = torch.randint(0, 4, (40, 16), generator=generator)
    places = torch.randn(2, 16, 16, generator=generator)  # head source target
    liking = torch.randn(2, 16, 4, generator=generator)  # head source digit
    by_digit = torch.stack([liking[:, :, row] for row in digits])
    logits = places.expand(40, -1, -1, -1) if kind == "place" else by_digit
    sums = FactorSums()
    for part in (slice(0, 25), slice(25, 40)):
        sums.add(logits[part].softmax(-1).numpy(), digits[part].numpy())
    assert [*sums.values().values()] == pytest.approx(expected, abs=0.05)


def test_labour_of_noise_and_of_nothing() -> None:
    generator = torch.manual_seed(2)
    digits = torch.randint(0, 4, (30, 16), generator=generator).numpy()
    noise, nothing, single = FactorSums(), FactorSums(), FactorSums()
    weights = torch.randn(30, 2, 16, 16, generator=generator).softmax(-1).numpy()
    noise.add(weights, digits)
    nothing.add(np.full((30, 2, 16, 16), 1 / 16), digits)
    single.add(weights[:1], digits[:1])
    assert max(noise.values().values()) < 0.03
    assert all(np.isnan(value) for value in nothing.values().values())
    assert np.isnan(single.values()["geometry"])


def test_self_referral_without_self_edges() -> None:
    weights = torch.eye(4).expand(1, 2, 4, 4).clone()
    weights[0, 1] = weights[0, 1].roll(1, dims=-1)  # the second head refers to others
    factors = 100 * torch.eye(4).expand(1, 2, 4, 4)
    found = means(self_referral(weights, factors, torch.tensor([[True, True, False, False]])))
    assert [*found.values()] == pytest.approx([0.5, 1.0, 0.5, 0.5, 1.0])
    flat = self_referral(torch.full((1, 1, 4, 4), 0.25), None, torch.ones(1, 4, dtype=torch.bool))
    assert np.isnan(means(flat)["without self-edge"])


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
        assert means(expert_shares(edge, node))[name] == 1, name


def test_rounds() -> None:
    answers = np.array([[1, 1, 0], [2, 1, 0], [1, 1, 3], [1, 2, 3]])
    solution = np.array([1, 2, 3])
    assert lost(answers, solution).any(axis=0).tolist() == [True, False, False]
    sums = RoundSums()
    where = np.array([[True, True, True], [True, True, False]])
    sums.add(np.stack([answers, answers]), np.stack([solution, solution]), where)
    found = {name: np.asarray(value).tolist() for name, value in sums.values().items()}
    assert found == {
        "samples": 2, "cells": 5, "right": [2, 0, 3, 5], "solved": [0, 0, 0, 2],
        "decided": [0, 0, 3, 2], "lost": [0, 2, 0, 0], "ever_undone": 2, "restored": 2,
    }  # fmt: skip


def test_what_known_weights_read() -> None:
    regions = make_regions((4, 4), (2, 2))
    rows, flat = regions["row"] / 4.0, np.full((16, 16), 1 / 16)
    e1_weights = np.broadcast_to([[[1.0, 0.0]], [[0.5, 0.5]]], (2, 16, 2))[None]
    found = means(regions_read(np.stack([rows, flat])[None], regions), slots_read(e1_weights))
    assert found["slots"].tolist() == [0.75, 0.25]
    assert found["row"] == pytest.approx([1, 0.25])
    even = {name.removeprefix("even "): found[name] for name in found if name.startswith("even")}
    assert {*even} == {"self", "row", "column", "box", "cross+box"}
    assert all(found[name][1] == pytest.approx(share) for name, share in even.items())


def test_slots_that_collapse_and_targets_at_the_floor() -> None:
    apart = torch.eye(4)[None, None]  # b n k m: no two slots overlap
    alike = apart.mean(dim=2, keepdim=True).expand_as(apart)
    assert means(slot_shares(apart), slot_shares(alike))["effective"] == pytest.approx((4 + 1) / 2)

    mass = torch.tensor([[1.0, 1e-8], [1e-4, 1e-9]])  # source, target
    temps = torch.tensor([2.0, 0.5])
    factors = temps[:, None] * mass.clamp(min=1e-8).log()
    every, own = (
        floor_shares(factors[None, None], temps[None, None], 1e-8, seen)
        for seen in (None, torch.eye(2, dtype=torch.bool))
    )
    assert means(every)["floor"] == 0.5
    assert means(every, own)["floor"] == 3 / 6
