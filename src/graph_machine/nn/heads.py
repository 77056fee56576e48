"""Projections into heads, gathered into as few matrix products as possible."""

from collections.abc import Mapping
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.nn.basic import NORM_EPS
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.position import rotate
from graph_machine.ops.temperature import temperature
from graph_machine.spaces import Context

Experts = Literal["both", "node", "edge"]


def check_experts(experts: str, where: str) -> None:
    options = get_args(Experts)
    if experts not in options:
        raise ConfigError(
            f"{where}: unknown experts '{experts}'.{did_you_mean(experts, options)} "
            f"Known: {', '.join(options)}."
        )


class HeadProjection(nn.Module):
    """One Linear whose output is cut into named parts of (heads x width) columns."""

    def __init__(self, dim: int, num_heads: int, widths: Mapping[str, int]) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.widths = dict(widths)
        self.linear = nn.Linear(dim, num_heads * sum(widths.values()), bias=False)

    def forward(self, x: Float[Tensor, "b n d"]) -> dict[str, Tensor]:
        """Name -> (b, h, n, width); a width of 1 is a scalar per head, (b, h, n)."""
        sizes = [self.num_heads * width for width in self.widths.values()]
        parts = self.linear(x).split(sizes, dim=-1)
        cut = {}
        for (name, width), part in zip(self.widths.items(), parts):
            heads = part.unflatten(-1, (self.num_heads, width)).transpose(1, 2)
            cut[name] = heads.squeeze(-1) if width == 1 else heads
        return cut

    def weights(self) -> dict[str, Float[Tensor, "h w d"]]:
        """Name -> this part of the weight, for implementations that absorb it."""
        sizes = [self.num_heads * width for width in self.widths.values()]
        parts = self.linear.weight.split(sizes, dim=0)
        return {
            name: part.unflatten(0, (self.num_heads, width))
            for (name, width), part in zip(self.widths.items(), parts)
        }


def unit_rms(x: Float[Tensor, "*s d"]) -> Float[Tensor, "*s d"]:
    """QK-norm: RMS norm without a learned scale, so that it adds no parameters."""
    return functional.rms_norm(in_float32(x), x.shape[-1:], eps=NORM_EPS)


def queries_and_keys(
    parts: Mapping[str, Tensor], qk_norm: bool, rotary: Float[Tensor, "n half"] | None
) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n d"] | None]:
    """Of a projection, normed and turned as the layer says; None without keys of nodes."""
    found = [parts["queries"], parts.get("keys")]
    if qk_norm:
        found = [None if x is None else unit_rms(x) for x in found]
    if rotary is not None:
        found = [None if x is None else rotate(x, rotary) for x in found]
    queries, keys = found
    assert queries is not None
    return queries, keys


def factor_temps(
    parts: Mapping[str, Tensor], kind: str, context: Context, name: str
) -> Float[Tensor, "b h n"] | None:
    """Temperatures of one factor, reported; None where they are off."""
    raw = parts.get(f"{name}_temps")
    return None if raw is None else context.report(f"{name}_factor_temps", temperature(raw, kind))
