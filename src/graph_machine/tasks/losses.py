"""The losses of a task: at the places that count, mean per example, in float32."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


def answer_losses(
    logits: Float[Tensor, "b q o"], answers: Int[Tensor, "b q"], where: Bool[Tensor, "b q"]
) -> Float[Tensor, "b"]:
    """Cross-entropy at the places of `where`. An example in which nothing counts has a loss of 0.

    >>> logits = torch.zeros(1, 3, 4)  # b q o: a guess among 4
    >>> answer_losses(logits, torch.tensor([[0, 1, 2]]), torch.tensor([[True, True, False]]))
    tensor([1.3863])
    """
    targets = torch.where(where, answers, 0)
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), reduction="none"
    ).view_as(targets)
    return torch.where(where, losses, 0).sum(dim=-1) / where.sum(dim=-1).clamp_min(1)


def number_losses(
    outputs: Float[Tensor, "b q o"], answers: Float[Tensor, "b q o"], where: Bool[Tensor, "b q"]
) -> Float[Tensor, "b"]:
    """Squared error at the places of `where`. An example in which nothing counts has a loss of 0.

    >>> outputs, answers = torch.tensor([[[1.0], [5.0]]]), torch.tensor([[[3.0], [0.0]]])  # b q o
    >>> number_losses(outputs, answers, torch.tensor([[True, False]]))
    tensor([4.])
    """
    losses = (outputs.float() - answers.float()).square().mean(dim=-1)
    return torch.where(where, losses, 0).sum(dim=-1) / where.sum(dim=-1).clamp_min(1)
