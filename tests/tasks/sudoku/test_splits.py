"""Splits and the hash behind them: the same on every machine."""

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.rows import mix, permutation, split_rows, stream, stream_key


def test_splitmix():
    """The first numbers of SplitMix64 from seed 1234567, as published with the algorithm."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert stream(1234567, 3).tolist() == expected
    assert stream(1234567, 2, start=1).tolist() == expected[1:]


def test_mix_is_a_bijection():
    values = mix(np.arange(100_000, dtype=np.uint64))
    assert len(np.unique(values)) == 100_000


def test_keys_differ():
    keys = {stream_key(*parts) for parts in [("a", 0), ("b", 0), ("a", 1), (0,), (0, 0), ("a", -1)]}
    assert len(keys) == 6


def test_permutation_is_fair():
    """Every place gets every item about equally often (chi-square, 25 degrees of freedom)."""
    orders = np.array([permutation(stream_key("test", i), 6) for i in range(1800)])
    assert (np.sort(orders, axis=1) == np.arange(6)).all()
    counts = np.array([np.bincount(column, minlength=6) for column in orders.T])
    assert ((counts - 300) ** 2 / 300).sum() < 60


@pytest.mark.parametrize("count", [3, 10, 99, 1000, 20_001])
def test_split(count):
    splits = split_rows(count, seed=3)
    everything = np.concatenate([splits.train, splits.eval, splits.test])
    assert (np.sort(everything) == np.arange(count)).all()
    for part in (splits.eval, splits.test):
        assert len(part) == max(1, round(0.05 * count))


def test_split_is_the_same_everywhere():
    splits = split_rows(3_000_000, seed=0)
    assert [len(splits.train), len(splits.eval), len(splits.test)] == [2_700_000, 150_000, 150_000]
    assert splits.train[:3].tolist() == [2109620, 1058999, 989584]
    assert splits.test[:3].tolist() == [1939357, 936800, 1550213]


def test_split_is_redrawn_for_each_seed():
    first, second = split_rows(10_000, 0).test, split_rows(10_000, 1).test
    assert len(np.intersect1d(first, second)) < 60  # 25 expected


@pytest.mark.parametrize(
    ("count", "fractions", "message"),
    [
        (2, (0.9, 0.05, 0.05), "Cannot split 2 rows"),
        (100, (0.9, 0.2, 0.05), "sum to 1"),
        (100, (1.1, -0.05, -0.05), "at least 0"),
    ],
)
def test_bad_split(count, fractions, message):
    with pytest.raises(DataError, match=message):
        split_rows(count, 0, fractions)
