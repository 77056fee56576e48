"""2D sinusoidal position encodings, added to the node features at the input."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError


def grid_coordinates(rows: int, cols: int) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Row and column of every cell, row-major."""
    cells = torch.arange(rows * cols)
    return cells // cols, cells % cols


def frequencies(count: int, base: float) -> Float[Tensor, " f"]:
    """`count` frequencies from 1 towards 1/base, geometrically."""
    return base ** (-torch.arange(count, dtype=torch.float32) / count)


def sinusoidal_positions(
    rows: int, cols: int, dim: int, base: float = 10_000.0
) -> Float[Tensor, "n dim"]:
    """Half of the features encode the row, half the column; each half is sines, then cosines.

    >>> sinusoidal_positions(9, 9, dim=64).shape  # n = rows x cols
    torch.Size([81, 64])
    """
    if dim % 4:
        raise ConfigError(f"2D sinusoidal positions need a width divisible by 4, got {dim}.")
    parts = []
    for coordinate in grid_coordinates(rows, cols):
        angles = coordinate[:, None] * frequencies(dim // 4, base)  # n f
        parts += [angles.sin(), angles.cos()]
    return torch.cat(parts, dim=-1)
