"""Answers survive the way to the page."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from graph_machine.explorer.pack import pack, unpack


def test_halves_come_back_exactly() -> None:
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float16)
    header, arrays = unpack(pack({"a": 1, "text": "é"}, {"x": values, "y": np.arange(7)}))
    assert header == {"a": 1, "text": "é"}
    assert_array_equal(arrays["x"], values)
    assert_array_equal(arrays["y"], np.arange(7))


def test_steps_are_within_half_a_step_of_their_row() -> None:
    values = np.random.default_rng(0).normal(size=(4, 3, 81)).astype(np.float32)
    values[0, 0] = 0.25  # a uniform board has no range
    _, arrays = unpack(pack({}, {"x": values}, "u8"))
    spread = np.ptp(values, axis=-1, keepdims=True)
    assert np.all(np.abs(arrays["x"] - values) <= spread / 510 + 1e-6)


def test_steps_are_smaller() -> None:
    values = np.zeros((32, 8, 81), dtype=np.float32)
    assert len(pack({}, {"x": values}, "u8")) < 0.6 * len(pack({}, {"x": values}, "f2"))


def test_values_beyond_a_half_are_clipped_not_infinite() -> None:
    _, arrays = unpack(pack({}, {"x": np.array([1e6, -1e6], dtype=np.float32)}))
    assert_allclose(arrays["x"], [65504, -65504])


@pytest.mark.parametrize("precision", ["f2", "u8"])
def test_scalars_and_empty_arrays(precision: str) -> None:
    given = {"scalar": np.full((), 2.5), "empty": np.zeros((0, 4))}
    _, arrays = unpack(pack({}, given, precision))  # type: ignore[arg-type]
    assert arrays["scalar"] == 2.5
    assert arrays["empty"].shape == (0, 4)


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not an explorer answer"):
        unpack(b"<html></html>")
