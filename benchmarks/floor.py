"""The floor: only the matrix products that joint referral cannot avoid."""

from collections.abc import Callable

import torch
from torch import Tensor


def pad_width(width: int) -> int:
    """The next multiple of 16: MKL is several times slower at widths such as 8, 81 or 89."""
    return -(-width // 16) * 16


def referral_floor(b: int, n: int, k: int, d: int, e: int) -> Callable[[], None]:
    """Products of forward and backward, graph by graph into buffers that stay in the cache.

    Widths are padded to multiples of 16, which makes MKL faster, so the floor is not flattered.
    No product is made twice, as recomputation would.
    """
    h, c = k, n * k
    dw, ew, aw = pad_width(d), pad_width(e), pad_width(n)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape)

    queries, node_keys, keys = rand(h, n, dw), rand(h, n, dw), rand(h, c, dw)
    values, addresses = rand(h, c, ew), rand(c, aw)
    weights, logits = rand(h, n, c), rand(h, n, c)
    outs, value_outs = rand(h * n, aw), rand(h, n, ew)
    factors, small = rand(h, n, n), rand(h, n, dw)
    own, mixed, slots = rand(n, h, k), rand(n, h, n), rand(n, k, n)
    key_grads, value_grads, address_grads = rand(h, c, dw), rand(h, c, ew), rand(c, aw)
    flat, transposed = weights.view(h * n, c), weights.transpose(1, 2)

    def forward() -> None:
        torch.bmm(own, slots, out=mixed)
        torch.bmm(queries, node_keys.transpose(1, 2), out=factors)
        torch.bmm(queries, keys.transpose(1, 2), out=logits)
        torch.mm(flat, addresses, out=outs)
        torch.bmm(weights, values, out=value_outs)

    def backward() -> None:
        torch.mm(outs, addresses.t(), out=logits.view(h * n, c))
        torch.baddbmm(logits, value_outs, values.transpose(1, 2), out=logits)
        torch.mm(flat.t(), outs, out=address_grads)
        torch.bmm(transposed, value_outs, out=value_grads)
        torch.bmm(weights, keys, out=small)
        torch.bmm(transposed, queries, out=key_grads)
        torch.bmm(factors, node_keys, out=small)
        torch.bmm(factors.transpose(1, 2), queries, out=small)
        torch.bmm(mixed, slots.transpose(1, 2), out=own)
        torch.bmm(own.transpose(1, 2), mixed, out=slots)

    def step() -> None:
        for _ in range(b):
            forward()
            backward()

    return step
