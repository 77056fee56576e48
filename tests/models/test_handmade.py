"""The hand-built GM makes exactly the regions that it was built to make, for every cell."""

import numpy as np
import pytest
import torch

from graph_machine.errors import ConfigError
from graph_machine.lab.analysis.regions import make_regions
from graph_machine.lab.records.record import Record
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.models.handmade import NUM_LAYERS, SLOTS, handmade_gm
from support.recordings import handmade_record

BOXES = ((2, 2), (2, 3), (3, 2), (3, 3))
# (slot, region, layer in which it is complete)
BUILT = [("box", "box", 1), ("row", "row", 2), ("col", "column", 2), ("self", "self", 0)]
BUILT += [("up", "cross", 4), ("down", "cross+box", 5)]


def address_outs(made: Record, layer: int, slot: str) -> np.ndarray:
    """New addresses of the first sample: source, target."""
    return made[f"layers.{layer}.edge.0.address_outs"][0, :, SLOTS.index(slot)]


@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize(("slot", "region", "layer"), BUILT)
def test_regions_are_complete_and_nothing_else(
    box: tuple[int, int], slot: str, region: str, layer: int
) -> None:
    made = handmade_record(box)
    side = box[0] * box[1]
    expected = make_regions((side, side), box)[region]
    for later in range(layer, NUM_LAYERS if slot not in ("up", "down") else layer + 1):
        np.testing.assert_array_equal(address_outs(made, later, slot) > 1e-3, expected)


@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_jumps_double(box: tuple[int, int], layer: int) -> None:
    """2, 4, 8 cells after layers 0, 1, 2, or as far as the border."""
    made = handmade_record(box)
    side = box[0] * box[1]
    rows, cols = np.divmod(np.arange(side * side), side)
    step = 2 ** (layer + 1)
    targets = {
        "up": (np.maximum(rows - step, 0), cols),
        "down": (np.minimum(rows + step, side - 1), cols),
        "left": (rows, np.maximum(cols - step, 0)),
        "right": (rows, np.minimum(cols + step, side - 1)),
    }
    for slot, (row, col) in targets.items():
        found = address_outs(made, layer, slot)
        np.testing.assert_array_equal(found.argmax(axis=-1), row * side + col)
        assert found.max(axis=-1).min() > 0.99


def test_edges_do_not_depend_on_the_puzzle() -> None:
    found = handmade_record()["layers.5.edge.0.address_outs"]
    np.testing.assert_allclose(found, found[:1].repeat(len(found), axis=0), atol=1e-3)


def test_it_answers_naked_singles_and_knows_what_it_does_not_know() -> None:
    """Confidence is one over the candidates left by row, column and box."""
    box = BoxShape(3, 3)
    puzzle = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    prediction = handmade_gm((3, 3)).predict([puzzle])
    digits = np.array([0 if c == "." else int(c) for c in puzzle])
    for cell in range(81):
        if digits[cell]:
            assert prediction.answers[0, cell] + 1 == digits[cell]
            continue
        peers = {int(d) for unit in box.units if cell in unit for d in digits[unit]}
        left = set(range(1, 10)) - peers
        assert int(prediction.answers[0, cell]) + 1 in left
        assert prediction.confidences[0, cell] == pytest.approx(1 / len(left), rel=1e-2)


def test_it_is_an_ordinary_model(tmp_path) -> None:
    from graph_machine.models import GraphMachine

    model = handmade_gm((2, 2))
    again = GraphMachine.from_pretrained(model.save_pretrained(tmp_path))
    tokens = torch.randint(0, 5, (2, 16))
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits, rtol=0, atol=0)


def test_large_boxes_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 or 3 cells"):
        handmade_gm((4, 4))
