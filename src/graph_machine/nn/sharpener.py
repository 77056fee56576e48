"""The sharpener: where an edge's temperature comes from (paper, 2.4 and the ablation in 3.3)."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.errors import ShapeError, check_choice
from graph_machine.nn.basic import NORM_EPS, RMSNorm
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.numerics import temperature
from graph_machine.ops.rows import edge_temps

SharpenerKind = Literal["projection", "learned", "fixed", "off"]


class Sharpener(nn.Module):
    """Temperatures for the k edges of every node.

    `projection` (the paper's default) reads them off edge features, `learned` holds one value per
    slot, `fixed` is one number for all, `off` leaves addresses as they are (None).

    >>> Sharpener(d_edge=8, num_edges=3)(torch.zeros(1, 4, 3, 8)).shape  # b n k
    torch.Size([1, 4, 3])
    """

    def __init__(
        self,
        *,
        d_edge: int,
        num_edges: int,
        kind: SharpenerKind = "projection",
        value: float = 1.0,
        temperature: str = "softplus",
    ) -> None:
        super().__init__()
        check_choice("Sharpener", "kind", kind, get_args(SharpenerKind))
        self.kind = kind
        self.value = value
        self.temperature = temperature
        if kind == "projection":
            self.norm = RMSNorm(d_edge)
            self.project = nn.Linear(d_edge, 1, bias=False)
        elif kind == "learned":
            self.values = nn.Parameter(torch.zeros(num_edges))

    def reset_parameters(self) -> None:
        """Learned temperatures start at 0, which stands for a temperature of 1."""
        if self.kind == "learned":
            nn.init.zeros_(self.values)

    def forward(
        self, edge_features: Float[Tensor, "b n k e"], backend: Backend = "reference"
    ) -> Float[Tensor, "b n k"] | None:
        """Temperatures of the edges with these features; None where the sharpener is off."""
        if self.kind == "off":
            return None
        slots = edge_features.shape[:-1]
        if self.kind == "projection":
            raw = self.project(self.norm(edge_features, backend)).squeeze(-1)
            return temperature(raw, self.temperature)
        if self.kind == "learned":
            if slots[-1] not in (0, len(self.values)):
                raise ShapeError(
                    f"Sharpener: it learned temperatures for k = {len(self.values)} edge slots, "
                    f"got {slots[-1]}."
                )
            return temperature(self.values[: slots[-1]], self.temperature).expand(slots)
        dtype = torch.promote_types(edge_features.dtype, torch.float32)
        return torch.full(slots, self.value, dtype=dtype, device=edge_features.device)

    def beside(
        self, edge_features: Float[Tensor, "b n k e"], norm: RMSNorm, backend: Backend
    ) -> tuple[Float[Tensor, "b n k"] | None, Float[Tensor, "b n k e"]]:
        """Temperatures, and the same features normed: both need their root mean squares."""
        if self.kind == "projection" and resolve(backend, "Sharpener") == "fused":
            weights = (self.norm.weight, self.project.weight, norm.weight)
            found = edge_temps(edge_features, *weights, self.temperature, NORM_EPS)
            if found is not None:
                return found
        return self(edge_features, backend), norm(edge_features, backend)
