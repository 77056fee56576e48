"""Coalescing: three methods, one meaning."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.address import sparse as module
from graph_machine.ops.address.sparse import METHODS, coalesce, pick_method


def check(indices: Tensor, num_nodes: int, method: str | None) -> None:
    found = coalesce(indices, num_nodes, method=method)
    for row, distinct, slots in zip(indices, found.indices, found.slots):
        listed = distinct[distinct >= 0].tolist()
        assert listed == list(dict.fromkeys(row[row >= 0].tolist()))  # as they first appear
        assert (distinct[len(listed) :] == -1).all()
        for entry, slot in zip(row.tolist(), slots.tolist()):
            assert slot == 0 if entry < 0 else distinct[slot] == entry


@pytest.mark.parametrize("method", [*METHODS, None])
@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-1, 5), min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
)
def test_methods_find_distinct_targets(method, rows):
    check(torch.tensor(rows), 6, method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(300, 70), (5, 1), (1, 200)])
def test_wide_rows_and_blocks(method, shape, monkeypatch):
    monkeypatch.setattr(module, "SCRATCH_ENTRIES", 1000)
    monkeypatch.setattr(module, "PAIRWISE_ELEMENTS", 20_000)
    check(torch.randint(-1, 30, shape), 30, method)


@pytest.mark.parametrize("method", METHODS)
def test_empty_rows(method):
    found = coalesce(torch.full((3, 4), -1), 5, method=method)
    assert found.indices.tolist() == [[-1]] * 3
    assert found.slots.sum() == 0


def test_sizes_pick_the_method():
    cpu = torch.device("cpu")
    assert pick_method(2, 100, cpu) == "pairwise"
    assert pick_method(16, 100, cpu) == "sort"
    assert pick_method(64, 100, cpu) == "scatter"
    assert pick_method(64, 1 << 30, cpu) == "sort"
    assert pick_method(64, 100, torch.device("meta")) == "sort"


def test_unknown_method():
    with pytest.raises(ConfigError, match=r"unknown method 'sorted'\. Did you mean 'sort'"):
        coalesce(torch.zeros(1, 1, dtype=torch.long), 2, method="sorted")
