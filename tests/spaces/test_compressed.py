"""The compressed space: the logit space when nothing is compressed, and never an n x n tensor."""

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.nn import listen
from graph_machine.spaces import CompressedSpace
from graph_machine.state import Visibility
from support.cases import SMALL, edges_of, make_stack, make_state
from support.gradients import assert_same, stack_gradients
from support.largest import LargestTensor
from tolerances import assert_close

N = 7
PADDED = torch.tensor([[True] * N, [True] * 5 + [False] * 2])
VISIBILITIES = {
    "all": Visibility(),
    "padded": Visibility(PADDED),
    "causal": Visibility(causal=True),
    "both": Visibility(PADDED, causal=True),
}
KINDS = ("joint", "preaggregated")


def some_targets(n: int = N) -> Tensor:
    nodes = torch.arange(n).expand(2, n)
    earlier = (torch.rand(2, n) * (nodes + 1)).long()
    return torch.stack([nodes, earlier, torch.full_like(nodes, -1)], dim=-1)


def identity(n: int = N) -> CompressedSpace:
    space = CompressedSpace(c=n, decoder="position", num_positions=n)
    assert space.rows is not None
    space.rows.data = torch.eye(n, dtype=torch.float64)
    return space


@pytest.mark.parametrize("sight", VISIBILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_logit_space_with_an_identity_decoder(kind, sight):
    stack, visibility, targets = make_stack(kind=kind), VISIBILITIES[sight], some_targets()
    state = make_state(targets, space="logit", visibility=visibility)
    given = identity().initial(targets, state.node_features, visibility)
    real = visibility.node_mask
    # Logits of compressed addresses have no mask: attention and referral apply it.
    actual, expected = (
        stack_gradients(stack, one, real, addresses=False)
        for one in (state.replace(addresses=given), state)
    )
    assert_same(actual, expected)


@pytest.mark.parametrize("experts", ["edge", "node"])
def test_experts_alone(experts):
    stack = make_stack(edge={"experts": experts}, node={"experts": "edge"})
    targets = some_targets()
    state = make_state(targets, space="logit")
    given = identity().initial(targets, state.node_features)
    actual = stack_gradients(stack, state.replace(addresses=given))
    assert_same(actual, stack_gradients(stack, state))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_tensor_of_n_by_n_is_made(kind, causal):
    n = 2048 if kind == "joint" and causal else 1024
    nodes = torch.arange(n)
    targets = torch.stack([nodes, (nodes - 1).clamp_min(0), torch.full_like(nodes, -1)], dim=-1)
    visibility = Visibility(torch.ones(1, n, dtype=torch.bool), causal)
    stack = make_stack(kind=kind, dtype=torch.float32)
    state = make_state(
        targets[None],
        visibility=visibility,
        space="compressed",
        c=8,
        d_node=SMALL.d_node,
        dtype=torch.float32,
    )
    with LargestTensor() as seen:
        new, _ = stack(state)
        (new.node_features.square().sum() + edges_of(new).square().sum()).backward()
    assert 0 < seen.largest < n * n  # bytes of the storage, so even a mask of bits would show


@pytest.mark.parametrize("decoder", ["position", "features"])
def test_a_hard_edge_points_at_its_target_first(decoder):
    space = CompressedSpace(c=16, decoder=decoder, d_node=12, num_positions=20)
    targets = torch.randint(0, 20, (1, 20, 2))
    found = space.initial(targets, torch.randn(1, 20, 12))
    assert torch.equal(found.to_dense().argmax(dim=-1), targets)


def test_the_decoder_learns():
    space = CompressedSpace(c=4, decoder="features", d_node=SMALL.d_node).double()
    state = make_state(some_targets())
    given = space.initial(some_targets(), state.node_features)
    new, _ = make_stack()(state.replace(addresses=given))
    new.node_features.square().sum().backward()
    assert space.project is not None
    assert space.project.weight.grad is not None
    assert space.project.weight.grad.abs().sum() > 0


def test_listeners_hear_factors():
    stack, heard = make_stack(), {}
    state = make_state(some_targets())
    given = CompressedSpace(c=4, d_node=SMALL.d_node).double()
    state = state.replace(addresses=given.initial(some_targets(), state.node_features))
    with listen(stack, lambda name, x: heard.__setitem__(name, x.shape)):
        listened, _ = stack(state)
    assert heard["layers.0.edge.0.n2_edge_factors"] == (2, 3, N, N)
    assert heard["layers.0.node.0.node_factors"] == (2, 2, N, N)
    assert_close(listened.node_features, stack(state)[0].node_features)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"c": 0}, "c should be at least 1"),
        ({"decoder": "position"}, "needs the number of positions"),
        ({"decoder": "features"}, "needs d_node"),
        ({"decoder": "feature"}, "'features'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        CompressedSpace(**settings)


def test_what_compressed_addresses_refuse():
    state = make_state(some_targets(), space="compressed", d_node=SMALL.d_node, dtype=torch.float32)
    with pytest.raises(ConfigError, match="preaggregated"):
        make_stack(kind="conditional", dtype=torch.float32)(state)
    space = CompressedSpace(decoder="position", num_positions=5)
    with pytest.raises(ShapeError, match="n = 7"):
        space.initial(some_targets(), torch.zeros(2, N, 3))
