"""Section 1 and 3.4: referral composes edges, so reach doubles with every referral."""

import pytest
import torch
from torch import Tensor, nn

from graph_machine.ops import edge_centric_referral
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import DenseAddresses
from graph_machine.state import GraphState
from support.cases import KINDS, StackSizes, make_stack

SELF, AHEAD = 0, 1


def path_addresses(n: int) -> Tensor:
    """Hard edges on a path: slot 0 is the node itself, slot 1 its neighbour ahead."""
    nodes = torch.arange(n)
    targets = torch.stack([nodes, (nodes + 1).clamp_max(n - 1)], dim=-1)
    return nn.functional.one_hot(targets, n).double().unsqueeze(0)  # 1 n 2 n


@pytest.mark.parametrize("kind", KINDS)
def test_hand_set_referrals_reach_twice_as_far_each_time(kind: ReferralKind) -> None:
    """Slot features are one-hot; head h looks for slot h among e1 and again among e2."""
    n, referrals = 33, 5
    addresses = path_addresses(n)
    slot_keys = torch.eye(2, dtype=torch.float64).expand(1, 2, n, 2, 2)
    queries = 60 * torch.eye(2, dtype=torch.float64)[None, :, None].expand(1, 2, n, 2)
    nothing = torch.zeros(1, 2, n, 2, 1, dtype=torch.float64)
    nodes = torch.arange(n)
    for step in range(1, referrals + 1):
        _, new = edge_centric_referral(
            n1_queries=queries,
            n2_node_factor_temps=torch.zeros(1, 2, n, dtype=torch.float64),
            e1_keys=slot_keys,
            e1_values=nothing,
            e1_addresses=addresses,
            n2_keys=torch.zeros(1, 2, n, 2, dtype=torch.float64),
            n2_values=torch.zeros(1, 2, n, 1, dtype=torch.float64),
            e2_keys=slot_keys,
            e2_values=nothing,
            e2_addresses=addresses,
            kind=kind,
        )
        addresses = new.transpose(1, 2)
        expected = torch.stack([nodes, (nodes + 2**step).clamp_max(n - 1)], dim=-1)
        assert torch.equal(addresses[0].argmax(dim=-1), expected)
        assert addresses[0].amax(dim=-1).min() > 1 - 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_no_weights_reach_farther(kind: ReferralKind) -> None:
    """Whatever the weights, hard edges of length 1 reach at most 2^t: mass beyond is the clip's."""
    n = 20
    size = StackSizes(num_layers=3, num_edges=2)
    stack = make_stack(
        size, kind=kind, edge={"experts": "edge", "factor_temps": False}, sharpener="off"
    )
    state = GraphState(
        node_features=torch.randn(1, n, size.d_node, dtype=torch.float64),
        edge_features=torch.randn(1, n, 2, size.d_edge, dtype=torch.float64),
        addresses=DenseAddresses(path_addresses(n)),
    )
    distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    for step, layer in enumerate(stack.layers, start=1):
        state, *_ = layer(state)
        assert state.addresses is not None
        dense = state.addresses.to_dense()[0]  # n k m
        outside = ((distance > 2**step) | (distance < 0)).unsqueeze(1)
        assert (dense * outside).sum(dim=-1).max() < 1e-3
        exactly = dense.amax(dim=1).diagonal(2**step)
        assert exactly.min() > 0
