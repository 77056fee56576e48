"""The parts that Graph Machines share with Transformers."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.errors import ShapeError, check_choice
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.numerics import in_float32, temperature
from graph_machine.ops.rows import edge_temps, edges_beside, feed_forward, rms_norm

# Also the eps of the later public code of the paper's author; torch's own default is float32's.
NORM_EPS = 1e-6


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm with our eps; computed in float32 whatever the width of its input.

    >>> import torch
    >>> RMSNorm(4)(torch.full((1, 4), 3.0)).detach()
    tensor([[1.0000, 1.0000, 1.0000, 1.0000]])
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, eps=NORM_EPS)

    def forward(
        self, x: Float[Tensor, "*s d"], backend: Backend = "reference"
    ) -> Float[Tensor, "*s d"]:
        """x over its root mean square, times the learned scale."""
        norm = rms_norm if resolve(backend, "RMSNorm") == "fused" else _plain_norm
        return norm(in_float32(x), in_float32(self.weight), NORM_EPS).to(x.dtype)


def _plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def widen(x: Float[Tensor, "*s d"], weight: Float[Tensor, "out d"]) -> Float[Tensor, "*s out"]:
    """`linear` from a small width to a larger one.

    With a row-major matrix on the right, autograd's products have the larger width innermost; at
    8 to 32 that takes half the time of `linear`, whose inner width of 8 MKL is slow at.
    """
    return x @ weight.t().contiguous()


class SwiGLU(nn.Module):
    """Position-wise feed-forward network: down(silu(gate x) * up x), no biases.

    >>> import torch
    >>> SwiGLU(8)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, *, expansion: int = 4) -> None:
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * expansion * dim, bias=False)
        self.down = nn.Linear(expansion * dim, dim, bias=False)

    def forward(self, x: Float[Tensor, "*s d"]) -> Float[Tensor, "*s d"]:
        # Two products with whole outputs: halves of one are strided, and their gradients have to
        # be joined again.
        """The network, position by position."""
        gate, up = self.gate_up.weight.chunk(2, dim=0)
        return self.down(functional.silu(widen(x, gate)) * widen(x, up))


def dropped(x: Float[Tensor, "*s d"], share: float) -> Float[Tensor, "*s d"]:
    """x with this share of it set to 0, and the rest scaled up."""
    return functional.dropout(x, share) if share else x


def residual_ffn(
    x: Float[Tensor, "*s d"] | None,
    added: Float[Tensor, "*s a"],
    out: nn.Linear,
    norm: RMSNorm,
    ffn: SwiGLU,
    backend: Backend,
    dropout: float = 0.0,
) -> Float[Tensor, "*s d"]:
    """y + ffn(norm(y)) with y = x + out(added), which the fused backend computes in one call.

    Without an x, y is out(added).
    """
    fused = not dropout and resolve(backend, "SwiGLU") == "fused"
    weights = (norm.weight, ffn.gate_up.weight, ffn.down.weight)
    if fused and x is not None:
        made = feed_forward(x, *weights, added, out.weight, NORM_EPS)
        if made is not None:
            return made
    y = dropped(out(added), dropout)
    y = y if x is None else x + y
    made = feed_forward(y, *weights, None, None, NORM_EPS) if fused else None
    return y + dropped(ffn(norm(y, backend)), dropout) if made is None else made


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

    def with_staying(
        self,
        edge_features: Float[Tensor, "b n k e"],
        norm: RMSNorm,
        stay: Float[Tensor, "b n s e"],
        targets: Int[Tensor, "b n g"],
        backend: Backend,
    ) -> tuple[Float[Tensor, "b n k"] | None, Float[Tensor, "b n t e"]]:
        """The same beside edges that stay: features of all, normed, those behind the others."""
        if self.kind in ("projection", "off") and resolve(backend, "Sharpener") == "fused":
            own = (self.norm.weight, self.project.weight) if self.kind == "projection" else None
            settings = (targets, self.temperature, NORM_EPS)
            found = edges_beside(edge_features, own, norm.weight, stay, *settings)
            if found is not None:
                return found
        temps, made = self.beside(edge_features, norm, backend)
        return temps, torch.cat([made, norm(stay, backend)], dim=2)
