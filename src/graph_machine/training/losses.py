"""The losses of every condition (paper, section 3.1 and appendix B)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.nn import Entropies
from graph_machine.ops.referral.hard import policy_loss
from graph_machine.state import GraphState


def answer_losses(
    logits: Float[Tensor, "b n o"], answers: Int[Tensor, "b n"], where: Bool[Tensor, "b n"]
) -> Float[Tensor, "b"]:
    """Cross-entropy at the nodes that count, mean per example, in float32.

    An example in which nothing counts has a loss of 0.
    """
    targets = torch.where(where, answers, 0)
    losses = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), reduction="none"
    ).view_as(targets)
    return (losses * where).sum(dim=-1) / where.sum(dim=-1).clamp_min(1)


def entropy_terms(entropies: Entropies) -> dict[str, Tensor]:
    """The entropies that this model has, by name; each is one loss, minimised."""
    return {
        f"entropy_{name}": value
        for name, value in zip(Entropies._fields, entropies, strict=True)
        if value is not None
    }


def policy_term(
    state: GraphState, losses: Float[Tensor, "b"], entropy_bonus: float
) -> Float[Tensor, ""] | None:
    """What to add to the mean loss where addresses were chosen (the hard space); else None.

    The score-function term with a leave-one-out baseline over the batch, unless the choices are
    trained straight-through, minus the bonus for their entropy.
    """
    policy = None if state.addresses is None else state.addresses.policy
    if policy is None:
        return None
    term = -entropy_bonus * policy.entropy
    if policy.log_probs is not None:
        term = term + policy_loss(losses, policy.log_probs)
    return term
