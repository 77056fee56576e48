"""What attention reads: streamed sums against recordings and known cases."""

import numpy as np
import pytest

from graph_machine.analysis.reading import ReadSums
from graph_machine.analysis.reading_text import reading_data, reading_text
from graph_machine.analysis.regions import make_regions
from graph_machine.analysis.statistics import Statistics, collect_statistics
from graph_machine.records import record
from support.recordings import TRANSFORMER, board_batch, boards, small_model

CORE = {"core_layers": 2, "rounds": 3}


def measured(model) -> Statistics:
    whole = board_batch()
    return collect_statistics(model, [whole.part(0, 2), whole.part(2, 4)], box=(2, 2))


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
    assert dict(zip(sums.told, masses.tolist()))["row"] == pytest.approx([1, 0.25])
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
    assert masses[sums.told.index("box")] == pytest.approx(inside.mean(axis=(0, 2)), rel=1e-4)
    assert not found.reading  # told of the core only


def test_text_and_data() -> None:
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
