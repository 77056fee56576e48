"""Gathered products: equal to plain indexing, in blocks, with every gradient."""

import pytest
import torch

from graph_machine.ops.attention import sparse as module
from graph_machine.ops.attention.sparse import gathered_mix, gathered_scores
from tolerances import assert_close


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)


def test_scores_and_their_gradients():
    queries = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, 7, (2, 5, 6))
    picked = torch.stack([keys[i][:, rows[i]] for i in range(2)])  # b h n c d
    expected = torch.einsum("bhnd,bhncd->bhnc", queries, picked)
    actual = gathered_scores(queries, keys, rows)
    assert_close(actual, expected)
    weight = torch.randn_like(expected)
    for found, wanted in zip(
        torch.autograd.grad((actual * weight).sum(), (queries, keys)),
        torch.autograd.grad((expected * weight).sum(), (queries, keys)),
    ):
        assert_close(found, wanted)


def test_mix_and_its_gradients():
    weights = torch.rand(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, 7, (2, 5, 6))
    picked = torch.stack([values[i][:, rows[i]] for i in range(2)])
    expected = torch.einsum("bhnc,bhncd->bhnd", weights, picked)
    actual = gathered_mix(weights, values, rows)
    assert_close(actual, expected)
    weight = torch.randn_like(expected)
    for found, wanted in zip(
        torch.autograd.grad((actual * weight).sum(), (weights, values)),
        torch.autograd.grad((expected * weight).sum(), (weights, values)),
    ):
        assert_close(found, wanted)


def test_gradcheck():
    queries = torch.randn(1, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, 4, (1, 2, 3))
    assert torch.autograd.gradcheck(lambda q, k: gathered_scores(q, k, rows), (queries, keys))
    weights = torch.rand(1, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, v: gathered_mix(w, v, rows), (weights, keys))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_keeps_float32(dtype):
    queries, keys = torch.randn(1, 2, 4, 3, dtype=dtype), torch.randn(1, 2, 4, 3, dtype=dtype)
    rows = torch.randint(0, 4, (1, 4, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert gathered_scores(queries, keys, rows).dtype == torch.float32
