"""Sinusoidal and rotary positions in two dimensions (paper, appendix C.4)."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops import rotary_angles, rotate, sinusoidal_positions
from graph_machine.ops.position import grid_coordinates
from tolerances import assert_close

BASES = (10.0, 100.0, 1000.0, 10_000.0)


def test_cells_are_row_major() -> None:
    rows, cols = grid_coordinates(2, 3)
    assert rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert cols.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("base", BASES)
def test_sinusoidal_values(base: float) -> None:
    rows, cols, dim = 3, 5, 12
    table = sinusoidal_positions(rows, cols, dim, base)
    assert table.shape == (15, 12)
    for row in range(rows):
        for col in range(cols):
            expected = []
            for place in (row, col):
                angles = [place / base ** (i / 3) for i in range(3)]
                expected += [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            assert table[row * cols + col].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("base", BASES)
def test_rotary_sees_differences_alone(base: float) -> None:
    """q . k after rotation depends on the shift between the two cells, rows and columns apart."""
    side, dim = 6, 8
    angles = rotary_angles(side, side, dim, base).double()
    # Angles are made in float32, which is what bounds the agreement.
    query, key = (torch.randn(dim, dtype=torch.float64) for _ in range(2))
    cells = side * side
    queries, keys = (rotate(x.expand(1, 1, cells, dim).clone(), angles)[0, 0] for x in (query, key))
    scores = (queries @ keys.T).reshape(side, side, side, side)
    for r, c in ((0, 0), (1, 0), (0, 2), (3, 1)):
        shifted = scores[: side - r, : side - c, r:, c:]
        row = torch.arange(side - r)[:, None]
        col = torch.arange(side - c)
        equal_shift = shifted[row, col, row, col]
        assert_close(equal_shift, equal_shift[0, 0].expand_as(equal_shift), dtype=torch.float32)
    assert scores[0, 0, 0, 1] != pytest.approx(scores[0, 0, 1, 0].item())
    assert_close(queries.norm(dim=-1), query.norm().expand(cells))
    assert_close(queries[0], query)


@pytest.mark.parametrize(
    ("function", "what"), [(sinusoidal_positions, "width"), (rotary_angles, "head size")]
)
def test_widths_should_be_divisible_by_four(function: Callable[..., Tensor], what: str) -> None:
    with pytest.raises(ConfigError, match=f"{what} divisible by 4, got 6"):
        function(3, 3, 6)
