"""Half precision: autocast leaves answers as they are, and encoders may be bfloat16 altogether."""

from typing import Any

import pytest
import torch

from graph_machine import GraphEncoder, open_model
from graph_machine.errors import ConfigError
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


@pytest.mark.parametrize("space", ["weight", "sparse", "hard"])
def test_an_encoder_learns_wherever_backward_is_called(space: str) -> None:
    sizes: dict[str, Any] = {"d_node": 8, "d_edge": 4, "num_layers": 2, "num_edges": 3, "d_in": 3}
    if space == "hard":
        sizes |= {"sharpener": "off", "estimator": "straight-through"}
    encoder = GraphEncoder(**sizes, address_space=space)
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = encoder(torch.randn(4, 3), ring)
        found.square().sum().backward()
    assert found.dtype == torch.float32  # a residual stream is not rounded
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("space", ["weight", "sparse", "compressed"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_encoder_in_half_precision(dtype: torch.dtype, space: str) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_node": 8, "d_edge": 4, "num_layers": 1, "num_edges": 4}
    encoder = GraphEncoder(**sizes, d_in=3, d_edge_in=2, address_space=space, recurrent=2)
    x, features = torch.randn(4, 3), torch.randn(4, 2)
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    exact = encoder(x, ring, features)
    found = encoder.to(dtype)(x, ring, features)
    found.sum().backward()
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact, atol=0.1, rtol=0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
    encoder.backend = "reference"
    with pytest.raises(ConfigError, match="float32"):
        encoder(x, ring, features)
