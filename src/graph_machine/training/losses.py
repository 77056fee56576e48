"""What is added to a task's own loss (paper, appendix B, and the hard address space)."""

from jaxtyping import Float
from torch import Tensor

from graph_machine.nn import Entropies
from graph_machine.ops.referral.hard import policy_loss
from graph_machine.state import GraphState


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
