"""Padding and causality: who may see whom, through many layers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.graphs import batch_graphs, sequence_graph
from graph_machine.nn import EdgeInput, NodeInput, listen
from graph_machine.ops.backend import Backend
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Context, DenseSpace
from graph_machine.state import GraphState, Visibility
from support.cases import (
    KINDS,
    SMALL,
    StackSizes,
    batched,
    dense,
    edges_of,
    make_stack,
    make_state,
    ring,
)
from tolerances import assert_close

DEEP = StackSizes(num_layers=6)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no sharpener": {"sharpener": "off"},
    "learned sharpener": {"sharpener": "learned"},
    "edge expert": {"experts": "edge"},
    "qk-norm": {"qk_norm": True},
    "exp": {"temperature": "exp"},
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_later_tokens_never_change_earlier_outputs(
    kind: ReferralKind, settings: dict[str, Any], backend: Backend
) -> None:
    """To the bit: features, edges and addresses of the past, through six layers."""
    stack = make_stack(DEEP, kind=kind, dtype=torch.float32, **settings)
    targets = batched(sequence_graph(11, 3), 2)
    state = make_state(targets, visibility=Visibility(causal=True), dtype=torch.float32)
    context = Context(backend=backend)
    out, _ = stack(state, context)
    for changed_from in (1, 6, 10):
        nodes, edges = state.node_features.clone(), edges_of(state).clone()
        nodes[:, changed_from:] = 3 * torch.randn_like(nodes[:, changed_from:])
        edges[:, changed_from:] = 3 * torch.randn_like(edges[:, changed_from:])
        other, _ = stack(state.replace(node_features=nodes, edge_features=edges), context)
        past = slice(None, changed_from)
        assert torch.equal(other.node_features[:, past], out.node_features[:, past])
        assert torch.equal(edges_of(other)[:, past], edges_of(out)[:, past])
        assert torch.equal(dense(other)[:, past], dense(out)[:, past])
        assert not torch.equal(other.node_features[:, -1], out.node_features[:, -1])


@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_addresses_never_point_at_the_future(kind: ReferralKind, space: str) -> None:
    stack = make_stack(DEEP, kind=kind)
    targets = batched(sequence_graph(9, 3), 1)
    state = make_state(targets, visibility=Visibility(causal=True), space=space)
    seen: list[Tensor] = []
    with listen(stack, lambda name, tensor: seen.append(tensor) if "address" in name else None):
        stack(state)
    assert len(seen) == 3 * DEEP.num_layers
    future = ~torch.ones(9, 9, dtype=torch.bool).tril()
    for addresses in seen:
        assert addresses.permute(0, 2, 1, 3)[..., future].abs().max() == 0
        assert_close(addresses.sum(dim=-1), torch.ones(1, 9, 3, dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_sequence_begins_like_the_shorter_one(kind: ReferralKind) -> None:
    """Causal and empty slots together: nothing depends on how long the sequence will be."""
    stack = make_stack(kind=kind)
    long = make_state(batched(sequence_graph(9, 3), 1), visibility=Visibility(causal=True))
    short = make_state(batched(sequence_graph(5, 3), 1), visibility=Visibility(causal=True))
    short = short.replace(
        node_features=long.node_features[:, :5], edge_features=edges_of(long)[:, :5]
    )
    assert_close(stack(short)[0].node_features, stack(long)[0].node_features[:, :5])


def padded(state: GraphState, extra: int, space: str = "weight") -> GraphState:
    """The same graphs with `extra` padded nodes on the right that hold garbage."""
    b, n, k = edges_of(state).shape[:3]
    mask = torch.zeros(b, n + extra, dtype=torch.bool)
    mask[:, :n] = True
    targets = torch.full((b, n + extra, k), -1)
    # ring(): self, next, one empty slot.
    targets[:, :n] = ring(n, k).targets
    targets[:, n:, 0] = 0
    visibility = Visibility(mask, causal=state.visibility.causal)
    garbage = make_state(targets, visibility=visibility, space=space)
    nodes, edges = 100 * garbage.node_features, 100 * edges_of(garbage)
    nodes[:, :n], edges[:, :n] = state.node_features, edges_of(state)
    return garbage.replace(node_features=nodes, edge_features=edges)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(
    kind: ReferralKind, settings: dict[str, Any], backend: Backend
) -> None:
    stack = make_stack(kind=kind, **settings)
    state = make_state(batched(ring(6), 2))
    context = Context(entropies=True, backend=backend)
    out, entropies = stack(state, context)
    larger, larger_entropies = stack(padded(state, 3), context)
    assert_close(larger.node_features[:, :6], out.node_features)
    assert_close(edges_of(larger)[:, :6], edges_of(out))
    assert_close(dense(larger)[:, :6, :, :6], dense(out))
    for ours, expected in zip(larger_entropies, entropies):
        if expected is not None:
            assert_close(ours, expected)


@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_gets_no_address_mass_and_no_gradient(kind: ReferralKind, space: str) -> None:
    stack = make_stack(kind=kind)
    state = padded(make_state(batched(ring(6), 2)), 3, space)
    nodes = state.node_features.requires_grad_()
    edges = edges_of(state).requires_grad_()
    seen: dict[str, Tensor] = {}
    with listen(stack, lambda name, tensor: seen.update({name: tensor})):
        out, entropies = stack(state, Context(entropies=True))
    for name, tensor in seen.items():
        if "address" in name:
            assert tensor[..., 6:].abs().max() == 0, name
        if name.endswith((".weights", "n2_weights")):
            assert tensor[..., 6:].abs().max() == 0, name
    loss = out.node_features[:, :6].square().sum() + edges_of(out)[:, :6].square().sum()
    loss = loss + sum(entropy for entropy in entropies)
    loss.backward()
    for features in (nodes, edges):
        assert features.grad is not None
        assert features.grad[:, 6:].abs().max() == 0
        assert features.grad[:, :6].abs().min() > 0
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in stack.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_of_different_sizes_in_one_batch_equal_each_alone(kind: ReferralKind) -> None:
    """From the input graphs through input layers to the outputs."""
    stack = make_stack(kind=kind)
    nodes_in = NodeInput(num_tokens=9, d_node=SMALL.d_node).double()
    edges_in = EdgeInput(d_edge=SMALL.d_edge, num_categories=3).double()
    space = DenseSpace()

    def run(tokens: Tensor, targets: Tensor, edges: Tensor, mask: Tensor | None) -> GraphState:
        sight = Visibility(mask)
        nodes = nodes_in(tokens)
        addresses = space.initial(targets, nodes, sight)
        return stack(GraphState(nodes, edges, addresses, sight).check())[0]

    sizes = (4, 1, 7)
    graphs = [ring(n) for n in sizes]
    tokens = [torch.randint(9, (n,)) for n in sizes]
    batch, mask = batch_graphs(graphs)
    padded_tokens = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    together = run(padded_tokens, batch.targets, edges_in(batch), mask)
    for i, (n, graph) in enumerate(zip(sizes, graphs)):
        alone = run(tokens[i][None], graph.targets[None], edges_in(graph)[None], None)
        assert_close(together.node_features[i, :n], alone.node_features[0])
        assert_close(edges_of(together)[i, :n], edges_of(alone)[0])
        assert_close(dense(together)[i, :n, :, :n], dense(alone)[0])


def test_causal_padding_on_the_left_harms_nobody() -> None:
    """Padded sources that see nothing at all: everything stays finite, gradients too."""
    stack = make_stack()
    mask = torch.tensor([[False, False, True, True, True]])
    targets = batched(sequence_graph(5, 3), 1)
    # Real nodes point at real nodes: slots that would reach into the padding are empty.
    targets = targets.clone().masked_fill(targets < 2, -1)
    state = make_state(targets, visibility=Visibility(mask, causal=True))
    out, _ = stack(state)
    assert torch.isfinite(out.node_features).all()
    out.node_features[:, 2:].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in stack.parameters() if p.grad is not None)
