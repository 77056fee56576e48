"""Autocast to bfloat16 leaves the answers of the shipped 4x4 model as they are."""

import torch

from graph_machine import open_model
from support.runs import puzzle_store


def test_shipped_model_answers_the_same() -> None:
    model = open_model("gm-4x4").model.eval()
    store = puzzle_store(150)
    tokens = torch.from_numpy(store.puzzles.astype("int64"))
    solutions = torch.from_numpy(store.solutions.astype("int64")) - 1
    with torch.no_grad():
        exact = model(tokens).logits.argmax(dim=-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = model(tokens).logits.argmax(dim=-1)
    boards = [(found == solutions).all(dim=-1).float().mean() for found in (exact, rounded)]
    assert abs(boards[0] - boards[1]) < 0.02
    assert (exact == rounded).float().mean() > 0.99
