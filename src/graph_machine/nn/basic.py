"""The parts that Graph Machines share with Transformers."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.ops.numerics import in_float32

# Also the eps of the later public code of the paper's author; torch's own default is float32's.
NORM_EPS = 1e-6


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm with our eps; computed in float32 whatever the width of its input."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, eps=NORM_EPS)

    def forward(self, x: Float[Tensor, "*s d"]) -> Float[Tensor, "*s d"]:
        weight = in_float32(self.weight)
        normed = functional.rms_norm(in_float32(x), self.normalized_shape, weight, self.eps)
        return normed.to(x.dtype)


class SwiGLU(nn.Module):
    """Position-wise feed-forward network: down(silu(gate x) * up x), no biases."""

    def __init__(self, dim: int, *, expansion: int = 4) -> None:
        super().__init__()
        # Gate and up side by side: one matrix product instead of two.
        self.gate_up = nn.Linear(dim, 2 * expansion * dim, bias=False)
        self.down = nn.Linear(expansion * dim, dim, bias=False)

    def forward(self, x: Float[Tensor, "*s d"]) -> Float[Tensor, "*s d"]:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)
