"""Splits that share no layout, batches by step, and arrays that are made once."""

from pathlib import Path

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.csv_files import cached_arrays, identity_of
from graph_machine.lab.tasks.rows import RowOrder, split_by_key


@pytest.mark.parametrize("groups", [3, 22, 900])
def test_splits_share_no_key(groups: int) -> None:
    keys = np.arange(2000, dtype=np.uint64) % np.uint64(groups)
    splits = split_by_key(keys, seed=1)
    parts = [splits.train, splits.eval, splits.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(2000))
    kinds = [set(keys[part].tolist()) for part in parts]
    assert all(kinds)
    assert sum(map(len, kinds)) == groups
    if groups == 900:
        assert [len(part) for part in parts[1:]] == pytest.approx([100, 100], abs=4)
    assert not np.array_equal(splits.train, split_by_key(keys, seed=2).train)


def test_too_few_layouts() -> None:
    with pytest.raises(DataError, match="2 different layouts"):
        split_by_key(np.array([1, 2, 2], dtype=np.uint64), 0)


def test_batches_by_step_cover_each_epoch() -> None:
    order = RowOrder(np.arange(10, 20), seed=0)
    rows = np.concatenate([order(step, 4) for step in range(5)])
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10, 20))
    assert np.array_equal(RowOrder(np.arange(10, 20), seed=0)(3, 4), order(3, 4))
    with pytest.raises(DataError, match="no rows"):
        RowOrder(np.arange(0), 0)


def test_arrays_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    made = {"a": np.arange(3), "b": np.ones((2, 2))}
    first = cached_arrays("some", ("a", "b"), lambda: made)
    second = cached_arrays("some", ("a", "b"), dict)  # would write nothing
    assert identity_of(first) == identity_of(second) == identity_of(made)
    assert identity_of({"a": made["a"]}) != identity_of(made)
