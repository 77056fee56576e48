"""Coalescing: the distinct targets of every row, as they first appear."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graph_machine.ops.address import sparse as module
from graph_machine.ops.address.sparse import EVERYWHERE, coalesce, first_by_sort, first_by_table


def check(indices: Tensor) -> None:
    found = coalesce(indices)
    for row, distinct, slots in zip(indices, found.indices, found.slots):
        listed = distinct[distinct != -1].tolist()
        assert listed == list(dict.fromkeys(row[row != -1].tolist()))
        assert (distinct[len(listed) :] == -1).all()
        for entry, slot in zip(row.tolist(), slots.tolist()):
            assert slot == 0 if entry == -1 else distinct[slot] == entry


@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(EVERYWHERE, 5), min_size=width, max_size=width),
            min_size=1,
            max_size=5,
        )
    )
)
def test_distinct_targets(rows):
    check(torch.tensor(rows))


@pytest.mark.parametrize("shape", [(300, 70), (5, 1), (1, 200)])
def test_wide_rows_and_both_ways(shape, monkeypatch):
    """In a table of few rows at a time, and by sorting, as accelerators do."""
    monkeypatch.setattr(module, "SCRATCH_ENTRIES", 1000)
    indices = torch.randint(EVERYWHERE, 30, shape)
    check(indices)
    assert torch.equal(first_by_sort(indices), first_by_table(indices))


def test_empty_rows():
    found = coalesce(torch.full((3, 4), -1))
    assert found.indices.tolist() == [[-1]] * 3
    assert found.slots.sum() == 0
