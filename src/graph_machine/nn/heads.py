"""Projections into heads, gathered into as few matrix products as possible."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.nn.basic import NORM_EPS, RMSNorm
from graph_machine.ops.backend import resolve
from graph_machine.ops.position import rotate
from graph_machine.ops.rows import NORMED, project_heads, split_heads
from graph_machine.spaces import Context

Experts = Literal["both", "node", "edge"]
EXPERTS: tuple[str, ...] = get_args(Experts)


class Heads(nn.Module):
    """A layer that projects nodes into heads, and how it wants them."""

    temperature: str
    qk_norm: bool
    rotary: Tensor | None


class HeadProjection(nn.Module):
    """One Linear whose output is cut into named parts of (heads x width) columns."""

    def __init__(self, dim: int, num_heads: int, widths: Mapping[str, int]) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.widths = dict(widths)
        self.linear = nn.Linear(dim, num_heads * sum(widths.values()), bias=False)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        layer: Heads,
        context: Context,
        norm: RMSNorm | None = None,
    ) -> dict[str, Tensor]:
        """Name -> (b, h, n, width), temperatures (b, h, n) reported as `..._factor_temps`.

        Rows are normed first, if there is a norm. Queries and keys are normed and turned as the
        layer says.
        """
        wanted: dict[str, Any] = {
            "temperature_kind": layer.temperature,
            "qk_norm": layer.qk_norm,
            "eps": NORM_EPS,
        }
        sizes, weight = (self.num_heads, self.widths), self.linear.weight
        parts = None
        if resolve(context.backend, "HeadProjection") == "fused":
            parts = project_heads(
                x, None if norm is None else norm.weight, weight, *sizes, **wanted
            )
        if parts is None:
            x = x if norm is None else norm(x, context.backend)
            parts = split_heads(self.linear(x), *sizes, **wanted)
        for name, part in parts.items():
            if name.endswith("_temps"):
                parts[name] = context.report(name.replace("_temps", "_factor_temps"), part)
            elif layer.rotary is not None and name in NORMED:
                parts[name] = rotate(part, layer.rotary)
        return parts

    def weights(self) -> dict[str, Float[Tensor, "h w d"]]:
        """Name -> this part of the weight, for implementations that absorb it."""
        sizes = [self.num_heads * width for width in self.widths.values()]
        parts = self.linear.weight.split(sizes, dim=0)
        return {
            name: part.unflatten(0, (self.num_heads, width))
            for (name, width), part in zip(self.widths.items(), parts)
        }
