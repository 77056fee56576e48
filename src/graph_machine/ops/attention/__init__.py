"""Edge-augmented attention (paper, section 2.2)."""

from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.errors import ShapeError
from graph_machine.ops.attention.fused import fused_attention
from graph_machine.ops.attention.reference import reference_attention
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies
from graph_machine.ops.numerics import ADDRESS_EPS, Tap, check_shapes, silent


def edge_augmented_attention(
    *,
    n1_queries: Float[Tensor, "b h n d"],
    edge_factor_temps: Float[Tensor, "b h n"] | None = None,
    node_factor_temps: Float[Tensor, "b h n"] | None = None,
    e1_keys: Float[Tensor, "b h n k d"] | None = None,
    e1_addresses: Float[Tensor, "b n k m"] | None = None,
    n2_keys: Float[Tensor, "b h m d"] | None = None,
    n2_values: Float[Tensor, "b h m v"],
    mask: Bool[Tensor, "#b #n m"] | None = None,
    eps: float = ADDRESS_EPS,
    backend: Backend = "auto",
) -> Float[Tensor, "b h n v"]:
    """Attention whose logits add an edge factor to the usual node factor (listing in appendix A.1).

    Temperatures default to 1. An edge temperature of 0 gives standard attention. Without `e1_keys`
    and `e1_addresses`, only the node expert is used; without `n2_keys`, only the edge expert.
    `mask` is True where n1 may attend to n2.

    >>> import torch
    >>> b, h, n, k, d = 2, 4, 6, 3, 8
    >>> outs = edge_augmented_attention(
    ...     n1_queries=torch.randn(b, h, n, d),
    ...     e1_keys=torch.randn(b, h, n, k, d),
    ...     e1_addresses=torch.full((b, n, k, n), 1 / n),
    ...     n2_keys=torch.randn(b, h, n, d),
    ...     n2_values=torch.randn(b, h, n, d),
    ... )
    >>> outs.shape  # b h n d
    torch.Size([2, 4, 6, 8])
    """
    given = {name: value for name, value in locals().items() if name != "backend"}
    check_shapes(edge_augmented_attention, given)
    if (e1_keys is None) != (e1_addresses is None):
        raise ShapeError("edge_augmented_attention: e1_keys and e1_addresses belong together.")
    if e1_keys is None and n2_keys is None:
        raise ShapeError("edge_augmented_attention: give e1_keys + e1_addresses, n2_keys, or both.")
    return attend(AttentionInputs(**given), backend=backend)[0]


def attend(
    inputs: AttentionInputs, *, backend: Backend = "auto", tap: Tap | None = None
) -> tuple[Float[Tensor, "b h n v"], FactorEntropies]:
    """Outputs and, if requested, entropies. Layers and `edge_augmented_attention` call this."""
    word = resolve(backend, "edge_augmented_attention", staged=inputs.staged(tap))
    if word == "reference":
        return reference_attention(inputs, silent if tap is None else tap)
    return fused_attention(inputs)


__all__ = ["attend", "edge_augmented_attention"]
