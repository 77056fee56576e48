"""Sharpening: temperature scaling of addresses in log space."""

from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.errors import ShapeError
from graph_machine.ops import operators
from graph_machine.ops.address import sharpen_chunked
from graph_machine.ops.address.convert import to_logits
from graph_machine.ops.backend import Backend, register, resolve
from graph_machine.ops.core import SharpenInputs
from graph_machine.ops.native import calls
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32, masked_softmax

register("sharpen", "native", calls.SHARPEN)
register("sharpen", "chunked", sharpen_chunked.SHARPEN)


def sharpen(
    addresses: Float[Tensor, "b n k m"],
    temps: Float[Tensor, "b n k"],
    *,
    mask: Bool[Tensor, "#b #n m"] | None = None,
    eps: float = ADDRESS_EPS,
    backend: Backend = "auto",
) -> Float[Tensor, "b n k m"]:
    """Scale each address in log space by its own temperature, then renormalise (paper, 2.4).

    A temperature of 1 returns the address, above 1 concentrates it, 0 makes it uniform. Mass below
    `eps` is lifted to `eps` first, so no logit is infinite; `mask` (True: may be targeted) keeps
    that lifted mass off padding and off the future.

    >>> import torch
    >>> address = torch.tensor([[[[0.6, 0.3, 0.1]]]])  # b n k m
    >>> sharpen(address, torch.tensor([[[2.0]]]))
    tensor([[[[0.7826, 0.1957, 0.0217]]]])
    """
    if temps.shape != addresses.shape[:-1]:
        raise ShapeError(
            f"sharpen: temps should be (b, n, k) = {tuple(addresses.shape[:-1])}, "
            f"got {tuple(temps.shape)}."
        )
    if resolve(backend, "sharpen") == "fused":
        whole = in_float32(addresses).contiguous()
        temps = in_float32(temps).to(whole.dtype).contiguous()
        given = SharpenInputs(addresses=whole, temps=temps, mask=mask, eps=eps)
        return operators.sharpen(given).addresses
    logits = temps.unsqueeze(-1) * to_logits(addresses, eps)  # b n k m
    return masked_softmax(logits, None if mask is None else mask.unsqueeze(-2))
