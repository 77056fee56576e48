"""A moving average of the weights, which is tested and saved instead of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Exponential moving average of a model's parameters, in the order of their names.

    The decay grows from 0.1 to its final value as (1 + step) / (10 + step) does, so that the first
    weights do not linger.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.tensors: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after step number `step` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = [value.detach() for _, value in self.model.named_parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), current, 1 - decay)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from tensors that were saved; on the model's device."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While the block runs, the model has the averaged weights."""
        kept = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, value in self.model.named_parameters():
            value.copy_(tensors[name])
