"""Random numbers and splits that are the same everywhere; batches by step; arrays made once."""

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.rows import (
    RowOrder,
    mix,
    permutation,
    split_by_key,
    split_rows,
    stream,
    stream_key,
)


def test_splitmix() -> None:
    """The first numbers of SplitMix64 from seed 1234567, as published with the algorithm."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert stream(1234567, 3).tolist() == expected
    assert stream(1234567, 2, start=1).tolist() == expected[1:]
    assert len(np.unique(mix(np.arange(100_000, dtype=np.uint64)))) == 100_000  # a bijection
    keys = {stream_key(*parts) for parts in [("a", 0), ("b", 0), ("a", 1), (0,), (0, 0), ("a", -1)]}
    assert len(keys) == 6


def test_permutation_is_fair() -> None:
    """Every place gets every item about equally often (chi-square, 25 degrees of freedom)."""
    orders = np.array([permutation(stream_key("test", i), 6) for i in range(1800)])
    assert (np.sort(orders, axis=1) == np.arange(6)).all()
    counts = np.array([np.bincount(column, minlength=6) for column in orders.T])
    assert ((counts - 300) ** 2 / 300).sum() < 60


@pytest.mark.parametrize("count", [3, 10, 99, 1000, 20_001])
def test_split(count: int) -> None:
    splits = split_rows(count, seed=3)
    everything = np.concatenate([splits.train, splits.eval, splits.test])
    assert (np.sort(everything) == np.arange(count)).all()
    assert len(splits.eval) == len(splits.test) == max(1, round(0.05 * count))


def test_split_is_the_same_everywhere_and_redrawn_for_each_seed() -> None:
    splits = split_rows(3_000_000, seed=0)
    assert [len(splits.train), len(splits.eval), len(splits.test)] == [2_700_000, 150_000, 150_000]
    assert splits.train[:3].tolist() == [2109620, 1058999, 989584]
    assert splits.test[:3].tolist() == [1939357, 936800, 1550213]
    first, second = split_rows(10_000, 0).test, split_rows(10_000, 1).test
    assert len(np.intersect1d(first, second)) < 60  # 25 expected


def test_too_few_rows_cannot_be_split() -> None:
    with pytest.raises(DataError, match="2 rows"):
        split_rows(2, 0)


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
    with pytest.raises(DataError, match="2 different"):
        split_by_key(np.array([1, 2, 2], dtype=np.uint64), 0)


def test_batches_by_step_cover_each_epoch() -> None:
    order = RowOrder(np.arange(10, 20), seed=0)
    rows = np.concatenate([order(step, 4) for step in range(5)])
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10, 20))
    assert np.array_equal(RowOrder(np.arange(10, 20), seed=0)(3, 4), order(3, 4))
    with pytest.raises(DataError, match="no rows"):
        RowOrder(np.arange(0), 0)
