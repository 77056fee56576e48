"""Sharpening in one pass: clamp, log, scale and softmax for a few rows at a time."""

import torch

from graph_machine.ops.backend import Implementation
from graph_machine.ops.chunked_factors import MASKED, below, softmax_backward
from graph_machine.ops.chunks import Scratch, chunks
from graph_machine.ops.core import SharpenInputs, SharpenOuts


def forward(inputs: SharpenInputs) -> SharpenOuts:
    addresses, mask = inputs.addresses, inputs.mask
    b, n, k, m = addresses.shape
    outs, scratch = torch.empty_like(addresses), Scratch(addresses)
    for chunk in chunks(b, n, k * m, addresses.device):
        part = chunk.take(addresses, 1)
        logits = torch.clamp_min(part, inputs.eps, out=scratch("logits", *part.shape))
        logits.log_().mul_(chunk.take(inputs.temps, 1).unsqueeze(-1))
        if mask is not None:
            logits.masked_fill_(~chunk.take(mask, 1).unsqueeze(-2), MASKED)
        torch.softmax(logits, dim=-1, out=chunk.take(outs, 1))
    if mask is not None:
        outs *= mask.unsqueeze(-2)
    return SharpenOuts(outs)


def backward(inputs: SharpenInputs, outs: SharpenOuts, above: SharpenOuts) -> SharpenInputs:
    """Masked entries need no care: outputs are 0 there."""
    addresses, temps, eps = inputs.addresses, inputs.temps, inputs.eps
    b, n, k, m = addresses.shape
    grads, scratch = inputs.empty_grads(), Scratch(addresses)
    address_grads = above.addresses.contiguous()
    threshold = below(eps, addresses.dtype)
    for chunk in chunks(b, n, k * m, addresses.device):
        part, delta = chunk.take(addresses, 1), chunk.take(grads.addresses, 1)
        weights = chunk.take(outs.addresses, 1)
        softmax_backward(chunk.take(address_grads, 1), weights, delta)
        floor = torch.clamp_min(part, eps, out=scratch("floor", *part.shape))
        logits = torch.log(floor, out=scratch("logits", *part.shape))
        chunk.take(grads.temps, 1).copy_(logits.mul_(delta).sum(dim=-1))
        delta.mul_(chunk.take(temps, 1).unsqueeze(-1)).div_(floor)
        torch.ops.aten.threshold_backward.grad_input(delta, part, threshold, grad_input=delta)
    return grads


SHARPEN = Implementation(forward, backward)
