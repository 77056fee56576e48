"""2D rotary position encodings, on queries and n2 keys."""

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.position.sinusoidal import frequencies, grid_coordinates


def rotary_angles(rows: int, cols: int, dim: int, base: float = 10.0) -> Float[Tensor, "n half"]:
    """One angle per pair of features: half of the pairs turn with the row, half with the column.

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
    """Turn feature pairs (i, i + d/2) by their angles; dot products then see only differences.

    A shorter sequence has the first of the angles.

    >>> queries = torch.ones(1, 8, 81, 8)  # b h n d
    >>> rotate(queries, rotary_angles(9, 9, dim=8)).shape
    torch.Size([1, 8, 81, 8])
    """
    first, second = x.chunk(2, dim=-1)
    angles = angles[: x.shape[-2]]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
