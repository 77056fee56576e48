"""Sharpening in one go: clamp, log, scale and softmax for a few rows at a time."""

import torch
from torch import Tensor

from graph_machine.ops.fused.factors import MASKED, below, softmax_backward
from graph_machine.ops.fused.native import calls
from graph_machine.ops.fused.plan import Scratch, chunks


def forward_sharpen(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    b, n, k, m = addresses.shape
    outs = torch.empty_like(addresses)
    if calls.sharpen(addresses, temps, None if mask is None else mask.contiguous(), eps, outs):
        return outs
    scratch = Scratch(addresses)
    for chunk in chunks(b, n, k * m, addresses.device):
        part = chunk.take(addresses, 1)
        logits = torch.clamp_min(part, eps, out=scratch("logits", *part.shape))
        logits.log_().mul_(chunk.take(temps, 1).unsqueeze(-1))
        if mask is not None:
            logits.masked_fill_(~chunk.take(mask, 1).unsqueeze(-2), MASKED)
        torch.softmax(logits, dim=-1, out=chunk.take(outs, 1))
    if mask is not None:
        outs *= mask.unsqueeze(-2)
    return outs


def backward_sharpen(
    grads: Tensor, addresses: Tensor, temps: Tensor, outs: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Gradients of addresses and temperatures. Masked entries need no care: `outs` is 0 there."""
    b, n, k, m = addresses.shape
    address_grads, temp_grads = torch.empty_like(addresses), torch.empty_like(temps)
    if calls.sharpen_backward(grads, addresses, temps, outs, eps, address_grads, temp_grads):
        return address_grads, temp_grads
    scratch = Scratch(addresses)
    threshold = below(eps, addresses.dtype)
    for chunk in chunks(b, n, k * m, addresses.device):
        part = chunk.take(addresses, 1)
        delta = chunk.take(address_grads, 1)
        softmax_backward(chunk.take(grads, 1), chunk.take(outs, 1), delta)
        floor = torch.clamp_min(part, eps, out=scratch("floor", *part.shape))
        logits = torch.log(floor, out=scratch("logits", *part.shape))
        chunk.take(temp_grads, 1).copy_(logits.mul_(delta).sum(dim=-1))
        delta.mul_(chunk.take(temps, 1).unsqueeze(-1)).div_(floor)
        torch.ops.aten.threshold_backward.grad_input(delta, part, threshold, grad_input=delta)
    return address_grads, temp_grads
