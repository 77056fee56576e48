"""The sparse space: equal to the dense model where definitions meet, well behaved beyond."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.graphs import InputGraph
from graph_machine.nn import Layer, NodeSublayer, listen
from graph_machine.ops.address.dense import keep_top_s
from graph_machine.spaces import Context, SparseAddresses, SparseSettings, SparseSpace, sparse
from graph_machine.state import GraphState, Visibility, at
from support.cases import KINDS, SMALL, batched, dense, edges_of, make_stack, make_state, ring
from support.gradients import assert_same, stack_gradients
from support.largest import LargestTensor
from support.shell import script
from tolerances import assert_close

ROOT = Path(__file__).parents[2]

N = 6
PADDED = torch.tensor([[True] * N, [True] * 4 + [False] * 2])
VISIBILITIES = {
    "all": Visibility(),
    "padded": Visibility(PADDED),
    "causal": Visibility(causal=True),
    "both": Visibility(PADDED, causal=True),
}


def random_graph(n: int = N, k: int = 3, batch: int = 2) -> Tensor:
    """Self, some node before it, an empty slot: allowed under every visibility."""
    nodes = torch.arange(n).expand(batch, n)
    earlier = (torch.rand(batch, n) * (nodes + 1)).long()
    rows = [nodes, earlier, torch.full_like(nodes, -1), *([earlier] * k)]
    return torch.stack(rows[:k], dim=-1)


def states(targets: Tensor, visibility: Visibility, *spaces: dict) -> list[GraphState]:
    """The same random features under several address spaces."""
    made = []
    for settings in spaces:
        torch.manual_seed(3)
        made.append(make_state(targets, visibility=visibility, **settings))
    return made


@pytest.mark.parametrize("sight", VISIBILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_dense_model_when_s_is_n(kind, sight):
    stack = make_stack(kind=kind)
    spaces = ({"space": "weight"}, {"space": "sparse", "s": N})
    weight, sparse = states(random_graph(), VISIBILITIES[sight], *spaces)
    assert isinstance(sparse.addresses, SparseAddresses)
    assert_same(stack_gradients(stack, sparse), stack_gradients(stack, weight))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        *({"edge": {"experts": word}, "node": {"experts": "edge"}} for word in ("edge", "node")),
        *({"sharpener": "off"}, {"factor_temps": False}, {"edge": {"separate_roles": True}}),
    ],
    ids=["edge-expert", "node-expert", "no-sharpener", "no-temps", "roles"],
)
def test_settings_equal_the_dense_model(kind, options):
    stack = make_stack(kind=kind, **options)
    weight, sparse = states(random_graph(), Visibility(), {}, {"space": "sparse", "s": N + 3})
    assert_same(stack_gradients(stack, sparse), stack_gradients(stack, weight))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_equals_the_simulation_where_definitions_meet(kind):
    """With mass below eps worth nothing, the simulated model attends to candidates alone.

    That needs temperatures away from 0, as the paper says; here they are fixed.
    """
    stack = make_stack(kind=kind, factor_temps=False, sharpener="fixed", sharpener_value=1.3)
    eps, s = 1e-60, 2
    targets = torch.randint(0, 8, (2, 8, 3))  # no empty slots
    made = states(
        targets,
        Visibility(),
        {"space": "weight", "eps": eps, "top_s": s},
        {"space": "sparse", "eps": eps, "s": s},
    )
    runs = []
    for state in made:
        new, _ = stack(state)
        # The simulation cuts an address when it is next sharpened: its last ones are still whole.
        outs = {
            "nodes": new.node_features,
            "edges": edges_of(new),
            "addresses": keep_top_s(dense(new), s, eps=eps),
        }
        loss = torch.stack([out.pow(3).sum() for out in outs.values()]).sum()
        names, parameters = zip(*stack.named_parameters())
        runs.append(outs | dict(zip(names, torch.autograd.grad(loss, parameters))))
    assert_same(runs[1], runs[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", [{}, {"chains": 3}], ids=["all", "chains"])
def test_a_batch_of_different_graphs_is_its_graphs(kind, limits):
    """Padding changes nothing, also where s is below n; the small graph may list every node."""
    stack = make_stack(kind=kind)
    settings = {"space": "sparse", "s": 4} | limits
    targets = torch.randint(0, 4, (2, N, 3))  # no empty slots: their equal weights make ties
    both = make_state(targets, visibility=VISIBILITIES["padded"], **settings)
    whole, _ = stack(both)
    for row, size in enumerate((6, 4)):
        cut = slice(row, row + 1), slice(0, size)
        space = SparseSpace(**{key: value for key, value in settings.items() if key != "space"})
        nodes = both.node_features[cut]
        single = GraphState(nodes, edges_of(both)[cut], space.initial(targets[cut], nodes))
        alone, _ = stack(single)
        assert_close(whole.node_features[cut], alone.node_features, what=f"graph {row}")
        assert_close(dense(whole)[cut][..., :size], dense(alone), what=f"graph {row}")


@pytest.mark.parametrize("kind", KINDS)
def test_causal_models_do_not_see_the_future(kind):
    stack = make_stack(kind=kind)
    state = make_state(
        random_graph(9), visibility=Visibility(causal=True), space="sparse", s=3, chains=4
    )
    other = state.replace(node_features=state.node_features.clone())
    other.node_features[:, 6:] += 1.0
    first, second = stack(state)[0], stack(other)[0]
    assert_close(second.node_features[:, :6], first.node_features[:, :6])
    assert not torch.allclose(second.node_features[:, 6:], first.node_features[:, 6:])
    assert dense(first).triu(1).ne(0).any(dim=(0, 2)).triu(1).sum() == 0


def test_addresses_stay_distributions_over_distinct_targets():
    stack = make_stack()
    state = make_state(batched(ring(20, 3), 2), space="sparse", s=4, chains=5)
    new, _ = stack(state, Context(training=True))
    found = new.addresses
    assert isinstance(found, SparseAddresses)
    assert found.indices.shape == (2, 20, 3, 4)
    assert_close(found.weights.sum(dim=-1), torch.ones(2, 20, 3, dtype=torch.float64))
    for row in found.indices.reshape(-1, 4):
        listed = row[row >= 0]
        assert len(listed.unique()) == len(listed)


def test_slots_permute():
    """Permuting the nodes permutes the outputs (hard edges; empty ones spread by position)."""
    stack, order = make_stack(), torch.randperm(9)
    targets = torch.randint(0, 9, (1, 9, 3))
    state = make_state(targets, space="sparse", s=3, chains=4)
    back = torch.empty_like(order)
    back[order] = torch.arange(9)
    assert state.addresses is not None
    moved_nodes = state.node_features[:, order]
    moved = GraphState(
        moved_nodes,
        edges_of(state)[:, order],
        SparseSpace(s=3, chains=4).initial(back[targets[:, order]], moved_nodes),
    )
    assert_close(stack(moved)[0].node_features, stack(state)[0].node_features[:, order])


def test_gumbel_noise_is_for_training_and_changes_choices_alone():
    stack = make_stack()
    state = make_state(batched(ring(20, 3), 1), space="sparse", s=2, gumbel_tau=2.0)
    calm = [stack(state, Context(training=False))[0] for _ in range(2)]
    assert_close(calm[0].node_features, calm[1].node_features)
    noisy = [stack(state, Context(training=True))[0] for _ in range(2)]
    assert not torch.equal(dense(noisy[0]), dense(noisy[1]))
    assert torch.isfinite(noisy[0].node_features).all()


def test_schedule_moves_s_and_tau_to_their_ends():
    space = SparseSpace(s=4, s_start=64, gumbel_tau=0.0, gumbel_tau_start=1.0, anneal=0.5)
    assert (space.settings.s, space.settings.gumbel_tau) == (4, 0.0)  # as after loading
    seen = []
    for fraction in (0.0, 0.25, 0.5, 1.0):
        space.set_progress(fraction)
        seen.append((space.settings.s, space.settings.gumbel_tau))
    assert seen == [(64, 1.0), (16, 0.5), (4, 0.0), (4, 0.0)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("s", 0), ("chains", 0), ("s_attention", -1), ("s_start", 0)),
        *(("gumbel_tau", -0.1), ("gumbel_tau_start", -0.1), ("anneal", 0.0)),
    ],
)
def test_bad_settings(name, value):
    with pytest.raises(ConfigError, match=f" {name} should"):
        SparseSpace(**{name: value})


@pytest.mark.parametrize(
    ("indices", "weights", "words"),
    [
        ([[5, 0]], [[0.5, 0.5]], "targets should be 0 to 1.*got 0 to 5"),
        ([[-2, 0]], [[0.5, 0.5]], "got -2 to 0"),
        ([[1, 0]], [[-0.5, 0.5]], "finite and not negative"),
        ([[1, 0]], [[float("nan"), 0.5]], "finite and not negative"),
    ],
)
def test_bad_entries(indices, weights, words):
    rows = torch.tensor(indices).expand(1, 2, 1, 2)
    values = torch.tensor(weights).expand(1, 2, 1, 2)
    with pytest.raises(ShapeError, match=words):
        SparseAddresses.from_entries(rows, values, SparseSettings(2))


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    rows = torch.zeros(1, 2, 1, 2, dtype=torch.long)
    with pytest.raises(ShapeError, match="same"):
        SparseAddresses.from_entries(rows, torch.zeros(1, 2, 1, 3), SparseSettings(2))
    with pytest.raises(ShapeError, match=r"should be \(b, n, k, s\)"):
        SparseAddresses.from_entries(rows[0], torch.zeros(2, 1, 2), SparseSettings(2))
    with pytest.raises(ShapeError, match="no entries"):
        SparseAddresses.from_entries(rows[..., :0], torch.zeros(1, 2, 1, 0), SparseSettings(2))
    with pytest.raises(ShapeError, match="targets"):
        SparseSpace().initial(rows[..., 0] + 7, torch.zeros(1, 2, 3))


def test_duplicates_are_summed():
    rows = torch.tensor([1, 0, 1]).expand(1, 2, 1, 3)
    weights = torch.tensor([0.2, 0.5, 0.3]).expand(1, 2, 1, 3)
    found = SparseAddresses.from_entries(rows, weights, SparseSettings(2))
    assert_close(found.to_dense(), torch.tensor([0.5, 0.5]).expand(1, 2, 1, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_zero_weights_and_empty_rows_stay_finite(kind):
    """A node whose edges point nowhere gets nothing; its gradients are finite and others' too."""
    stack = make_stack(kind=kind)
    indices = torch.tensor([[0, 1], [2, -1], [-1, -1]]).expand(1, 5, 3, 2).clone()
    indices[:, 4] = -1
    weights = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    given = SparseAddresses.from_entries(
        indices, weights.expand(1, 5, 3, 2), SparseSettings(2, chains=4)
    )
    state = make_state(torch.zeros(1, 5, 3, dtype=torch.long)).replace(addresses=given)
    found = stack_gradients(stack, state)
    assert all(bool(torch.isfinite(x).all()) for x in found.values())
    assert dense(stack(state)[0])[:, 4].sum() == 0


def test_listeners_see_dense_tensors_and_may_replace_them():
    stack = make_stack()
    state = make_state(random_graph(), space="sparse", s=3, chains=4)
    heard: dict[str, tuple[int, ...]] = {}

    def listener(name: str, tensor: Tensor) -> None:
        heard[name] = tuple(tensor.shape)

    with listen(stack, listener):
        listened, _ = stack(state)
    assert_close(listened.node_features, stack(state)[0].node_features)
    assert heard["layers.1.edge.0.n2_weights"] == (2, 3, N, N)
    assert heard["layers.1.edge.0.e2_weights"] == (2, 3, N, N, 3)
    assert heard["layers.1.node.0.weights"] == (2, 2, N, N)
    with listen(stack, lambda name, x: x * 0 if name == "layers.2.node.0.weights" else None):
        cut, _ = stack(state)
    assert not torch.allclose(cut.node_features, listened.node_features)


def test_from_a_graph_of_the_user():
    graph = InputGraph(torch.tensor([[0, 1], [1, 2], [2, -1]]), torch.zeros(3, 2).long(), 2)
    found = SparseSpace(s=2).initial(graph.targets[None], torch.zeros(1, 3, SMALL.d_node))
    assert isinstance(found, SparseAddresses)
    assert found.indices[0, 0].tolist() == [[0, -1], [1, -1]]
    assert sorted(found.indices[0, 2, 1].tolist()) == [0, 2]  # empty: spread from itself on


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_the_whole(kind, monkeypatch):
    """Working part by part, with recomputation, changes no output and no gradient."""
    stack = make_stack(kind=kind)
    state = make_state(random_graph(), visibility=VISIBILITIES["padded"], space="sparse", s=3)
    whole = stack_gradients(stack, state)
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 40)
    assert_same(stack_gradients(stack, state), whole)


@pytest.mark.parametrize("parts", [False, True])
def test_settled_addresses_attend_alike(parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked up once serves any number of calls, also for some rows of the batch."""
    state = make_state(random_graph(), visibility=VISIBILITIES["padded"], space="sparse", s=3)
    if parts:
        monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 40)
    layer = Layer(node=[NodeSublayer(d_node=SMALL.d_node, d_edge=SMALL.d_edge, num_edges=3)])
    layer = layer.to(state.node_features.dtype)
    (fixed,) = layer.fix_edges(state, Context())
    assert fixed is not None
    assert isinstance(fixed.addresses, SparseAddresses)
    assert fixed.addresses.looked_up is not None
    plain = layer(state).state.node_features
    again = layer(state, Context(), [fixed]).state.node_features
    assert_close(again, plain)
    rows = torch.tensor([1])
    some = layer(state.rows(rows), Context(), [at(fixed, rows)]).state.node_features
    assert_close(some, plain[rows])
    parameters = list(layer.parameters())
    for found, wanted in zip(*(torch.autograd.grad(x.sum(), parameters) for x in (again, plain))):
        assert_close(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_no_tensor_of_n_by_n_is_made(kind):
    n = 12_000
    targets = torch.stack([torch.arange(n), torch.randint(0, n, (n,)), torch.full((n,), -1)], -1)
    stack = make_stack(kind=kind, dtype=torch.float32)
    state = make_state(targets[None], space="sparse", s=2, chains=2, dtype=torch.float32)
    with LargestTensor() as seen:
        new, _ = stack(state)
        (new.node_features.square().sum() + edges_of(new).square().sum()).backward()
    assert 0 < seen.largest < n * n  # bytes, so even a mask over all pairs would show


@pytest.mark.slow
def test_a_hundred_thousand_nodes_fit():
    """One layer, k = 8, s = 8, batch 1, forward and backward, in a process of its own."""
    code = (
        f"import sys; sys.path.append({str(ROOT)!r}); "
        "from benchmarks.scale import measure_case; "
        "print(measure_case('sparse', 100_000, repeats=1).peak_mb)"
    )
    assert float(script(code)) < 6_000
