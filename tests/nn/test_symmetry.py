"""What permutations of nodes and slots may and may not change, through a whole stack."""

import pytest
import torch
from torch import Tensor

from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Addresses, Context
from graph_machine.state import GraphState
from support.cases import (
    KINDS,
    batched,
    dense,
    edge_sublayer,
    edges_of,
    make_stack,
    make_state,
    node_sublayer,
    ring,
)
from tolerances import assert_close


def permuted(state: GraphState, order: Tensor) -> GraphState:
    """The same graph with its nodes renamed: node i of the result is node order[i]."""
    addresses = state.addresses
    assert addresses is not None
    values = addresses.values[:, order][..., order]  # pyrefly: ignore
    return state.replace(
        node_features=state.node_features[:, order],
        edge_features=edges_of(state)[:, order],
        addresses=type(addresses)(values),  # pyrefly: ignore
    )


@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_permuting_nodes_permutes_everything(kind: ReferralKind, space: str) -> None:
    stack = make_stack(kind=kind)
    state = make_state(batched(ring(7), 2), space=space)
    order = torch.randperm(7)
    out, entropies = stack(state, Context(entropies=True))
    other, other_entropies = stack(permuted(state, order), Context(entropies=True))
    assert_close(other.node_features, out.node_features[:, order])
    assert_close(edges_of(other), edges_of(out)[:, order])
    assert_close(dense(other), dense(out)[:, order][..., order])
    for ours, expected in zip(other_entropies, entropies):
        assert_close(ours, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_permuting_input_slots(kind: ReferralKind) -> None:
    """Attention does not see the order of slots; referral's new slots are its heads.

    So new addresses do not change at all, and new features change by the residual alone.
    """
    stack = make_stack(kind=kind)
    edge, node = edge_sublayer(stack), node_sublayer(stack)
    state = make_state(batched(ring(7), 2))
    order = torch.tensor([2, 0, 1])
    addresses = state.addresses
    assert isinstance(addresses, Addresses)
    other = state.replace(
        edge_features=edges_of(state)[:, :, order],
        addresses=type(addresses)(addresses.values[:, :, order]),  # pyrefly: ignore
    )
    assert_close(node(other)[0].node_features, node(state)[0].node_features)
    edge.residual = False
    new, _ = edge(state)
    other_new, _ = edge(other)
    assert_close(dense(other_new), dense(new))
    assert_close(edges_of(other_new), edges_of(new))
    edge.residual = True
    edge.ffn.down.weight.data.zero_()
    before, after = edges_of(state), edges_of(edge(state)[0])
    other_before, other_after = edges_of(other), edges_of(edge(other)[0])
    assert_close(other_after - other_before, after - before)
