"""The hard space: choices, their estimators against enumeration, and what it refuses."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.nn import EdgeCentricReferral, EdgeSublayer, GraphMachineStack
from graph_machine.ops.address.sparse import Entries, candidates
from graph_machine.ops.attention.sparse import own_edge_weights
from graph_machine.ops.referral.hard import HardCollected, leave_one_out, policy_loss, refer_hard
from graph_machine.ops.referral.sparse import sparse_factors
from graph_machine.spaces import Context, HardAddresses, HardSpace
from graph_machine.state import GraphState, Visibility
from support.cases import batched, dense, edges_of, make_stack, make_state, ring
from tolerances import assert_close


def hard_stack(**options):
    return make_stack(sharpener="off", **options)


def edge_sublayers(stack: GraphMachineStack) -> list[EdgeSublayer]:
    return [module for module in stack.modules() if isinstance(module, EdgeSublayer)]


def hard_state(n: int = 9, estimator: str = "reinforce", **options) -> GraphState:
    return make_state(batched(ring(n, 3), 2), space="hard", estimator=estimator, **options)


@pytest.mark.parametrize("kind", ["joint", "conditional"])
def test_new_edges_are_two_hop_edges(kind):
    stack = hard_stack(kind=kind)
    state = hard_state()
    before = dense(state)[0].sum(dim=1) > 0  # n m: who points where
    new, _ = edge_sublayers(stack)[0](state, Context(training=True))
    assert isinstance(new.addresses, HardAddresses)
    two_hops = (before.double() @ before.double()) > 0
    for node, row in enumerate(new.addresses.targets[0]):
        assert all(bool(two_hops[node, target]) for target in row)
    assert_close(dense(new).sum(dim=-1), torch.ones(2, 9, 3, dtype=torch.float64))


def test_distance_doubles_with_every_referral():
    """Paper: hard edges reach distance 2^t after t referrals, and no further."""
    stack, n = hard_stack(), 40
    state = hard_state(n)
    reached = []
    for sublayer in edge_sublayers(stack):
        state, _ = sublayer(state, Context(training=True))
        nodes = torch.arange(n)[:, None]
        assert isinstance(state.addresses, HardAddresses)
        reached.append(int(((state.addresses.targets[0] - nodes) % n).max()))
    assert reached[0] <= 2
    assert reached[1] <= 4
    assert reached[2] <= 8


def test_evaluation_is_deterministic_and_training_samples():
    stack, state = hard_stack(), hard_state()
    calm = [dense(stack.eval()(state)[0]) for _ in range(2)]
    assert torch.equal(*calm)
    sampled = [dense(stack.train()(state)[0]) for _ in range(4)]
    assert any(not torch.equal(sampled[0], other) for other in sampled[1:])


@pytest.mark.parametrize("sight", [Visibility(causal=True), Visibility(torch.ones(1, 6).bool())])
def test_choices_stay_allowed(sight):
    targets = torch.stack([torch.arange(6), torch.arange(6).flip(0)], dim=-1)[None]
    targets = torch.cat([targets, torch.full_like(targets[..., :1], -1)], dim=-1)
    state = make_state(targets, space="hard", visibility=sight)
    new, _ = hard_stack()(state, Context(training=True))
    assert isinstance(new.addresses, HardAddresses)
    if sight.causal:
        assert (new.addresses.targets[0] <= torch.arange(6)[:, None]).all()


def test_a_node_without_edges_stays_finite():
    targets = torch.full((1, 4, 3), -1)
    targets[:, 0] = 0
    state = make_state(targets, space="hard")
    new, _ = hard_stack()(state, Context(training=True, entropies=True))
    assert isinstance(new.addresses, HardAddresses)
    assert (new.addresses.targets[0, 1:] == -1).all()
    assert new.addresses.policy is not None
    logs = new.addresses.policy.log_probs
    assert logs is not None
    total = new.node_features.sum() + edges_of(new).sum() + logs.sum()
    total.backward()
    assert torch.isfinite(total)
    assert_close(logs[0, 1:], torch.zeros(3, dtype=torch.float64))


def log_probs_of(found: HardCollected) -> Tensor:
    assert found.policy.log_probs is not None
    return found.policy.log_probs


class Tiny:
    """One referral on two nodes with two edges each and two heads: 4^4 outcomes per graph."""

    def __init__(self) -> None:
        self.layer = EdgeCentricReferral(d_node=3, d_edge=2, num_edges=2, d_key=2).double()
        self.nodes = torch.randn(1, 2, 3, dtype=torch.float64)
        self.edges = torch.randn(1, 2, 2, 2, dtype=torch.float64)
        self.targets = torch.tensor([[[0, 1], [1, 0]]])

    def run(self, choices: Tensor | None = None, **options) -> HardCollected:
        inputs = self.layer.project(self.nodes, self.edges, Context())
        masses = torch.ones(1, 2, 2, 1, dtype=torch.float64)
        seen = candidates(Entries(self.targets.unsqueeze(-1), masses))
        e1 = own_edge_weights(inputs, inputs.edge_features, inputs.e1_key_weights)
        factors = sparse_factors(inputs, e1, seen, eps=1e-8, whole=True)
        return refer_hard(
            inputs,
            factors.summed,
            seen,
            self.targets,
            conditional=False,
            sample=True,
            choices=choices,
            **{"straight_through": False} | options,
        )

    def loss(self, found: HardCollected) -> Tensor:
        """Depends on which targets were chosen and, differentiably, on what they carry."""
        per_target = torch.tensor([0.3, -1.2], dtype=torch.float64)
        slots = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
        return (per_target[found.targets] * slots).sum() + found.features.pow(3).sum()

    def grads(self, value: Tensor) -> Tensor:
        found = torch.autograd.grad(
            value, list(self.layer.parameters()), allow_unused=True, retain_graph=True
        )
        return torch.cat(
            [
                torch.zeros(p.numel(), dtype=torch.float64) if g is None else g.flatten()
                for p, g in zip(self.layer.parameters(), found)
            ]
        )


OUTCOMES = [torch.tensor(c).reshape(1, 2, 2) for c in itertools.product(range(4), repeat=4)]


def test_score_function_gradient_is_exact_on_average():
    """Enumerating all outcomes: the estimate's mean is the gradient of the expected loss."""
    tiny = Tiny()
    expected = torch.zeros((), dtype=torch.float64)
    estimate = torch.zeros_like(tiny.grads(tiny.run(OUTCOMES[0]).features.sum()))
    baseline = torch.tensor([0.7], dtype=torch.float64)
    total = 0.0
    for choices in OUTCOMES:
        found = tiny.run(choices)
        prob = log_probs_of(found).sum().exp()
        loss = tiny.loss(found)
        expected = expected + prob * loss
        surrogate = loss + policy_loss(loss[None], log_probs_of(found), baseline)
        estimate = estimate + prob.detach() * tiny.grads(surrogate)
        total += float(prob.detach())
    assert total == pytest.approx(1.0)
    assert_close(estimate, tiny.grads(expected))


def test_leave_one_out_keeps_the_gradient_exact():
    """Two independent samples as a batch: enumerating all pairs gives the exact gradient."""
    tiny = Tiny()
    runs = [tiny.run(choices) for choices in OUTCOMES]
    probs = torch.stack([log_probs_of(run).sum().exp() for run in runs])
    losses = torch.stack([tiny.loss(run) for run in runs])
    logs = torch.stack([log_probs_of(run)[0] for run in runs])  # outcomes n
    held, weight = losses.detach(), probs.detach()
    pairs = torch.zeros((), dtype=torch.float64)
    for first in range(len(runs)):
        both = torch.stack([held[first].expand(len(runs)), held])  # 2 outcomes
        advantages = both - leave_one_out(both)
        scores = torch.stack([logs[first].sum().expand(len(runs)), logs.sum(dim=-1)])
        surrogate = (advantages * scores).mean(dim=0)
        pairs = pairs + (weight[first] * weight * surrogate).sum()
    direct = (weight * losses).sum()
    assert_close(tiny.grads(pairs + direct), tiny.grads((probs * losses).sum()))


def test_straight_through_is_the_soft_gradient_at_a_hard_value():
    """Its value is that of the choice; its gradient for the features that of the full mixture."""
    tiny, choices = Tiny(), OUTCOMES[27]
    hard, through = tiny.run(choices), tiny.run(choices, straight_through=True)
    assert_close(through.features, hard.features)
    direction = torch.randn_like(hard.features)
    soft = torch.zeros((), dtype=torch.float64)
    one_head = [tiny.run(torch.full((1, 2, 2), pair)) for pair in range(4)]
    for run in one_head:
        soft = soft + (run.probs.unsqueeze(-1) * run.features.detach() * direction).sum()
    extra = tiny.grads((through.features * direction).sum()) - tiny.grads(
        (hard.features * direction).sum()
    )
    assert_close(extra, tiny.grads(soft))


def test_local_losses_and_single_graphs():
    losses, logs = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    policy_loss(losses, logs).backward()
    assert logs.grad is not None
    assert_close(logs.grad, (losses - leave_one_out(losses)) / 12)
    assert_close(leave_one_out(torch.tensor([2.0])), torch.tensor([0.0]))
    assert_close(leave_one_out(torch.tensor([1.0, 3.0])), torch.tensor([3.0, 1.0]))


@pytest.mark.parametrize("estimator", ["reinforce", "straight-through"])
def test_every_parameter_gets_a_gradient(estimator):
    stack = hard_stack()
    new, _ = stack(hard_state(estimator=estimator), Context(training=True))
    loss = new.node_features.square().sum() + edges_of(new).square().sum()
    assert new.addresses is not None
    policy = new.addresses.policy
    assert policy is not None
    assert (policy.log_probs is None) == (estimator == "straight-through")
    assert 0 < float(policy.entropy.detach()) < 3
    if policy.log_probs is not None:
        assert policy.log_probs.shape == (2, 9)
        loss = loss + policy_loss(torch.tensor([1.0, 2.0]).double(), policy.log_probs)
    (loss - 0.01 * policy.entropy).backward()
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.usefixtures("unchecked")
def test_what_hard_addresses_refuse():
    state = hard_state()
    with pytest.raises(ConfigError, match="sharpener"):
        make_stack()(state)
    with pytest.raises(ConfigError, match="conditional"):
        hard_stack(kind="preaggregated")(state)
    with pytest.raises(ConfigError, match="'reinforced'"):
        HardSpace(estimator="reinforced")  # pyrefly: ignore


def pointers() -> ModuleType:
    """The example as a module."""
    path = Path(__file__).parents[2] / "examples" / "hard_pointers.py"
    spec = importlib.util.spec_from_file_location("hard_pointers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["reinforce", "straight-through"])
def test_pointers_are_found(estimator):
    """Two hops on random functional graphs; guessing gives a quarter."""
    module = pointers()
    settings = module.Settings(
        estimator=estimator, hops=2, num_nodes=6, num_labels=4, steps=150, batch_size=48, lr=5e-3
    )
    assert module.train(settings) > 0.95
