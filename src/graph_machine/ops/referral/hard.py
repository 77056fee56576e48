"""Hard referral: every new edge is one of at most k^2 two-hop edges, chosen by a policy.

This is the limiting case of the paper's section 2.5. The policy is the softmax that soft referral
would use as weights. There are two ways to train it. The score function (REINFORCE) is unbiased
and needs the returned log probabilities. Straight-through is biased but needs no reward.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.ops.address.dense import gumbel_like
from graph_machine.ops.address.sparse import Candidates
from graph_machine.ops.attention.sparse import edge_slots, flat_rows
from graph_machine.ops.inputs import NO_EDGE, ReferralInputs
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.referral.sparse import e2_queries, project, take_heads


class Policy(NamedTuple):
    """Log probabilities and entropies of the choices so far; only training needs them."""

    log_probs: Float[Tensor, "b n"] | None  # of a node's choices; None: trained straight-through
    entropy: Float[Tensor, ""]  # mean normalised entropy per choice, summed over sublayers


class HardCollected(NamedTuple):
    features: Float[Tensor, "b h n e"]
    targets: Int[Tensor, "b h n"]  # -1: no chain to choose
    probs: Float[Tensor, "b h n"]  # of the chosen chain
    policy: Policy


def pair_logits(
    inputs: ReferralInputs,
    n2_factors: Float[Tensor, "b h n c"],
    e1: Candidates,
    targets: Int[Tensor, "b m l"],
    conditional: bool,
) -> tuple[Float[Tensor, "b h n c l"], Bool[Tensor, "b n c l"], Float[Tensor, "b n c l e"]]:
    """Logits of all pairs (n2, e2), which pairs lead to a node, and the features of e2."""
    num_nodes = inputs.edge_features.shape[1]
    rows = flat_rows(e1.indices, num_nodes)  # b n c
    features = in_float32(inputs.edge_features).flatten(0, 1)  # bm l e
    edges = features.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # b n c l e
    e2 = torch.einsum("bhne,bncle->bhncl", e2_queries(inputs), edges)
    there = edge_slots(inputs, inputs.edge_features)
    if there is not None:
        e2 = e2.masked_fill(~there.flatten(0, 1)[rows].unsqueeze(1), NO_EDGE)
    if conditional:
        e2 = e2.log_softmax(dim=-1)
    leads = (targets >= 0).flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)
    return n2_factors.unsqueeze(-1) + e2, leads & e1.valid.unsqueeze(-1), edges


@torch.no_grad()
def choose_chain(log_probs: Float[Tensor, "b h n p"], sample: bool) -> Int[Tensor, "b h n"]:
    """One pair per head: sampled, or the most probable."""
    return (log_probs + gumbel_like(log_probs) if sample else log_probs).argmax(dim=-1)


def refer_hard(
    inputs: ReferralInputs,
    n2_factors: Float[Tensor, "b h n c"],
    e1: Candidates,
    targets: Int[Tensor, "b m l"],
    *,
    conditional: bool,
    straight_through: bool,
    sample: bool,
    choices: Int[Tensor, "b h n"] | None = None,
) -> HardCollected:
    """Choose a chain for every new edge; `choices` forces them, to enumerate a policy.

    Straight-through evaluates the chosen chain and differentiates as if all chains had been mixed
    by their probabilities. Otherwise the policy gets gradients only from `policy.log_probs`. A node
    without any chain keeps the values of e1 and gets an edge to nowhere.
    """
    logits, leads, edges = pair_logits(inputs, n2_factors, e1, targets, conditional)
    b, h, n, c, k = logits.shape
    valid = leads.flatten(-2).unsqueeze(1)  # b 1 n p
    lowest = torch.finfo(logits.dtype).min
    log_probs = logits.flatten(-2).masked_fill(~valid, lowest).log_softmax(dim=-1)  # b h n p
    chosen = choose_chain(log_probs, sample) if choices is None else choices
    some = valid.any(dim=-1)  # b 1 n
    log_prob = log_probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1) * some
    hard = torch.nn.functional.one_hot(chosen, c * k).to(log_probs.dtype) * some.unsqueeze(-1)
    probs = log_probs.exp() * valid
    weights = hard + (probs - probs.detach()) if straight_through else hard
    per_edge = weights.unflatten(-1, (c, k))
    mixed = torch.einsum("bhncl,bncle->bhne", per_edge, edges)
    rows = flat_rows(e1.indices, targets.shape[1]).unsqueeze(1).expand(b, h, n, c)
    values = take_heads(inputs.n2_values, rows)  # b h n c e
    outs = torch.einsum("bhnc,bhnce->bhne", per_edge.sum(dim=-1), values)
    outs = outs + project(mixed, inputs.e2_value_weights)
    n2 = rows.gather(-1, (chosen // k).unsqueeze(-1)).squeeze(-1)
    n3 = targets.flatten()[n2 * k + chosen % k].masked_fill(~some, -1)
    scores = None if straight_through else log_prob.sum(dim=1)
    policy = Policy(scores, policy_entropy(log_probs, valid))
    return HardCollected(outs, n3, log_prob.exp(), policy)


def policy_entropy(
    log_probs: Float[Tensor, "b h n p"], valid: Bool[Tensor, "b 1 n p"]
) -> Float[Tensor, ""]:
    """Mean entropy of the choices over its maximum; choices with one option have entropy 0."""
    entropy = -(log_probs.exp() * log_probs.clamp_min(-1e4)).sum(dim=-1)  # b h n
    top = valid.sum(dim=-1).to(entropy.dtype).clamp_min(1).log()
    return torch.where(top > 0, entropy / top.clamp_min(1e-12), 0.0).mean()


def leave_one_out(losses: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
    """For every graph the mean loss of the others: a baseline that its choices do not affect."""
    count = losses.shape[0]
    if count < 2:
        return torch.zeros_like(losses)
    return (losses.sum(dim=0) - losses) / (count - 1)


def policy_loss(
    losses: Float[Tensor, "b"] | Float[Tensor, "b n"],
    log_probs: Float[Tensor, "b n"],
    baseline: Float[Tensor, "b"] | Float[Tensor, "b n"] | None = None,
) -> Float[Tensor, ""]:
    """A term whose gradient is the score-function estimate; its value has no meaning.

    With one loss per graph, all choices of a graph share it, and the estimate is unbiased. With one
    loss per node, that loss rewards only the node's own choices. This is less noisy, and still
    unbiased if no other node reads the chosen edges (a single referral); otherwise it is an
    approximation. The default baseline is leave-one-out over the batch. Minimise this term together
    with the mean loss.
    """
    held = losses.detach()
    advantages = held - (leave_one_out(held) if baseline is None else baseline.detach())
    if advantages.ndim == 2:
        return (advantages * log_probs).mean()
    return (advantages * log_probs.sum(dim=-1)).mean()
