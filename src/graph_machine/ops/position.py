"""Positions on a grid: sinusoidal and rotary encodings in two dimensions."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError


def grid_coordinates(rows: int, cols: int) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Row and column of every cell, row-major."""
    cells = torch.arange(rows * cols)
    return cells // cols, cells % cols


def frequencies(count: int, base: float) -> Float[Tensor, " f"]:
    """`count` frequencies in geometric progression from 1 towards 1/base."""
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


def rotary_angles(rows: int, cols: int, dim: int, base: float = 10.0) -> Float[Tensor, "n half"]:
    """One angle per pair of features: half of the pairs rotate by the row, half by the column.

    >>> rotary_angles(9, 9, dim=8).shape  # n = rows x cols, half of dim
    torch.Size([81, 4])
    """
    if dim % 4:
        raise ConfigError(f"2D rotary positions need a head size divisible by 4, got {dim}.")
    row, col = grid_coordinates(rows, cols)
    steps = frequencies(dim // 4, base)
    return torch.cat([row[:, None] * steps, col[:, None] * steps], dim=-1)


def rotate(
    x: Float[Tensor, "b h n d"], angles: Float[Tensor, "places half"]
) -> Float[Tensor, "b h n d"]:
    """Rotate feature pairs (i, i + d/2) by their angles; dot products then see only differences.

    A shorter sequence uses the first angles.

    >>> queries = torch.ones(1, 8, 81, 8)  # b h n d
    >>> rotate(queries, rotary_angles(9, 9, dim=8)).shape
    torch.Size([1, 8, 81, 8])
    """
    first, second = x.chunk(2, dim=-1)
    angles = angles[: x.shape[-2]]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
