"""Given edges stay, the empty edge is always there, nodes read what edges carry: in every space."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError, ShapeError
from graph_machine.graphs import InputGraph, grid_graph
from graph_machine.models import GraphMachine
from graph_machine.nn.heads import EdgeAugmentedAttention
from graph_machine.nn.taps import listen
from graph_machine.ops.address.dense import sharpen
from graph_machine.ops.address.sparse import (
    EVERYWHERE,
    Entries,
    entries_to_dense,
    keep_best,
    sharpen_entries,
)
from graph_machine.spaces import SparseAddresses, sparse
from tolerances import assert_close

KINDS = ("joint", "conditional", "preaggregated")
SPEC = InputSpec(num_tokens=5, num_outputs=3, graph="given", num_edge_categories=4)
NODES, DEGREE = 7, 4
F64 = torch.float64
# Every space with a kind of referral that it has.
CASES = [
    *((space, kind) for space in ("weight", "logit", "sparse") for kind in KINDS),
    *(("compressed", kind) for kind in ("joint", "preaggregated")),
    *(("hard", kind) for kind in ("joint", "conditional")),
]


def model(spec: InputSpec = SPEC, **settings: Any) -> GraphMachine:
    torch.manual_seed(1)
    config = ModelConfig(num_layers=2, d_node=16, num_edges=3, num_heads=2, init="torch")
    given = {"given_edges": "always", "empty_edge": True, "edge_values": True}
    hard = settings.get("address_space") == "hard"
    config = config.replace(**given, sharpener="off" if hard else "projection")
    return GraphMachine(config.replace(**settings), spec).eval()


def example(degree: int = DEGREE, causal: bool = False) -> tuple[Tensor, InputGraph, Tensor]:
    """Two graphs, the second one padded, with different degrees from node to node."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, (2, NODES), generator=generator)
    targets = torch.randint(NODES, (2, NODES, degree), generator=generator)
    if causal:
        targets = targets % (torch.arange(NODES)[:, None] + 1)
    targets[torch.rand(targets.shape, generator=generator) < 0.4] = -1
    targets[0, 2] = -1
    mask = torch.ones(2, NODES, dtype=torch.bool)
    mask[1, 5:] = False
    targets[1] = targets[1].where(targets[1] < 5, -1)
    targets[1, 5:] = -1
    categories = torch.randint(3, targets.shape, generator=generator)
    return tokens, InputGraph(targets, categories.masked_fill(targets < 0, 3), 4), mask


def run(made: GraphMachine, *given: Any) -> dict[str, Tensor]:
    """Outputs, entropies and the gradient of every parameter."""
    made.zero_grad()
    mask = given[2]
    out = made(*given, entropies=True)
    found = {"logits": out.logits[mask]}
    found |= {name: x for name, x in out.entropies._asdict().items() if x is not None}
    weight = torch.linspace(0, 1, 3, dtype=out.logits.dtype)
    loss = (found["logits"] * weight).sum() + sum(found[name] for name in found if name != "logits")
    loss.backward()
    return found | {name: p.grad for name, p in made.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_equals_dense_when_s_is_n(kind: str, empty: bool, causal: bool) -> None:
    case, spec = example(causal=causal), SPEC.replace(causal=causal)
    if not empty:  # every node has an edge: who finds none to collect has none, here
        case[1].targets[..., 0] = torch.arange(NODES)
        case[1].targets[1, 5:] = -1
    settings: dict[str, Any] = {"referral": kind, "empty_edge": empty}
    settings["separate_roles"] = empty and kind == "joint"
    settings["global_heads"] = int(causal)
    dense = run(model(spec, **settings).double(), *case)
    sparse = model(spec, **settings, address_space="sparse", sparse_s=NODES).double()
    for name, value in run(sparse, *case).items():
        assert_close(value, dense[name], what=name)


@pytest.mark.parametrize("kind", ["joint", "preaggregated"])
@pytest.mark.parametrize("empty", [False, True])
def test_compressed_equals_logits_with_an_identity_decoder(kind: str, empty: bool) -> None:
    """Up to a constant per address, which no softmax sees: zeros for the empty edge, not 5 / n."""
    spec = SPEC.replace(num_nodes=NODES)
    settings: dict[str, Any] = {"referral": kind, "empty_edge": empty, "global_heads": 1}
    logit = model(spec, **settings, address_space="logit").double()
    settings |= {"address_space": "compressed", "compressed_c": NODES, "decoder": "position"}
    made = model(spec, **settings).double()
    made.load_state_dict(logit.state_dict(), strict=False)
    made.space.rows.data = torch.eye(NODES, dtype=F64)  # pyrefly: ignore
    expected = run(logit, *example())
    for name, value in run(made, *example()).items():
        if name != "space.rows":
            assert_close(value, expected[name], what=name)


@pytest.mark.parametrize(("space", "kind"), CASES)
def test_given_edges_are_a_set(space: str, kind: str) -> None:
    """Neither their order nor padding matters; listening changes nothing and sees every edge."""
    settings = {"referral": kind, "address_space": space, "sparse_s": 3, "sparse_chains": 9}
    made, (tokens, graph, mask) = model(**settings).double(), example()
    expected = made(tokens, graph, mask).logits
    order = torch.randperm(DEGREE)
    moved = InputGraph(graph.targets[:, :, order], graph.categories[:, :, order], 4)
    for other in (moved, graph.with_slots(DEGREE + 3)):
        assert_close(made(tokens, other, mask).logits[mask], expected[mask])
    assert_close(made(tokens[:1], graph[:1]).logits, expected[:1])
    heard: dict[str, Tensor] = {}

    def listener(name: str, tensor: Tensor) -> None:
        heard[name] = tensor

    with listen(made, listener):
        assert_close(made(tokens, graph, mask).logits[mask], expected[mask])
    for room in ("node", "edge"):
        weights = heard[f"layers.1.{room}.0.e1_weights"]
        assert weights.shape[-1] == 3 + DEGREE + 1
        total = weights.sum(dim=-1)
        assert_close(total, torch.ones_like(total))
        assert (
            weights[..., 3:-1].transpose(1, 2)[mask].sum(dim=1)[graph.targets[mask] < 0].eq(0).all()
        )


@pytest.mark.parametrize(("space", "kind"), CASES)
@pytest.mark.parametrize("empty", [False, True])
def test_any_degree(space: str, kind: str, empty: bool) -> None:
    """None, all others, a thousand more than elsewhere, multi-edges and loops, one node alone."""
    made = model(referral=kind, address_space=space, sparse_s=2, empty_edge=empty)
    full = torch.arange(NODES).expand(NODES, NODES)
    full = full[full != torch.arange(NODES)[:, None]].view(1, NODES, -1)
    many = torch.full((1, NODES, 1_000), -1)
    many[:, 0] = torch.arange(1_000) % NODES
    none = torch.full((1, NODES, 0), -1)
    for targets in (none, full, many, torch.zeros(1, 1, 2).long(), torch.full((1, 1, 1), -1)):
        graph = InputGraph(targets, torch.zeros_like(targets), 4)
        tokens = torch.zeros(1, targets.shape[1], dtype=torch.long)
        out = made(tokens, graph).logits
        assert out.isfinite().all()
        made.zero_grad()
        out.square().sum().backward()
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in made.parameters())


@pytest.mark.parametrize(("space", "kind"), CASES)
def test_the_future_stays_hidden(space: str, kind: str) -> None:
    """Later tokens change nothing, although given edges point at them."""
    made = model(SPEC.replace(causal=True), referral=kind, address_space=space, sparse_s=2)
    tokens, graph, _ = example()
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 5
    before, after = made(tokens, graph).logits, made(other, graph).logits
    assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any()


@pytest.mark.parametrize("space", ["weight", "sparse", "compressed", "hard"])
def test_rounds_of_a_core(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges that stay are looked up once, and parts of a large batch are the whole."""
    made = model(core_layers=1, rounds=3, address_space=space, sparse_s=3).double()
    tokens, graph, mask = example()
    whole = run(made, tokens, graph, mask)
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 40)
    for name, value in run(made, tokens, graph, mask).items():
        assert_close(value, whole[name], what=name)
    other = InputGraph(graph.targets, (graph.categories + 1) % 3, 4)
    assert (made(tokens, other, mask).logits[mask] != whole["logits"]).any()


def test_an_even_entry_is_a_dense_address() -> None:
    """Sharpened and cut as one entry, it is what sharpening all nodes gives."""
    indices = torch.tensor([[4, EVERYWHERE, 1, -1], [EVERYWHERE, -1, -1, -1], [2, 0, -1, -1]])
    weights = torch.tensor([[0.5, 0.3, 0.2, 0], [1, 0, 0, 0], [0.1, 0.9, 0, 0]], dtype=F64)
    entries = Entries(indices[None, None], weights[None, None])
    counts, allowed = torch.tensor([[6]]), torch.tensor([[[True] * 6 + [False]]])
    temps = torch.tensor([[[1.7, 0.3, 1.0]]], dtype=F64)
    sharp = sharpen_entries(entries, temps, counts=counts)
    expected = sharpen(entries_to_dense(entries, 7, allowed), temps, mask=allowed)
    # The last row has no even entry: only what it lists is there.
    assert_close(entries_to_dense(sharp, 7, allowed)[:, :, :2], expected[:, :, :2])
    assert_close(sharp.weights.sum(dim=-1), torch.ones(1, 1, 3, dtype=F64))
    assert EVERYWHERE in keep_best(sharp, 2).indices[0, 0, 1]


def test_the_empty_edge_survives_the_cut() -> None:
    """New addresses keep an even share as one entry, far below what a node of it would need."""
    made = model(address_space="sparse", sparse_s=2)
    tokens = torch.randint(5, (1, 40))
    targets = torch.arange(40)[None, :, None].roll(1, dims=1)
    state = made.initial_state(tokens, InputGraph(targets, torch.zeros_like(targets), 4), None)
    new, _ = made.stack(state)
    assert isinstance(new.addresses, SparseAddresses)
    assert new.addresses.indices.shape == (1, 40, 3, 2)
    even = new.addresses.indices == EVERYWHERE
    assert even.any()
    assert (new.addresses.weights[even] > 0).all()
    assert_close(new.addresses.to_dense().sum(dim=-1), torch.ones(1, 40, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(kind: str, causal: bool) -> None:
    spec = SPEC.replace(causal=causal)
    made, (tokens, graph, mask) = model(spec, referral=kind).double(), example()
    made.backend = "reference"
    names = [name for name, _ in made.named_parameters() if "first" in name or "from_edges" in name]
    assert len(names) >= 5
    weights = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def loss() -> Tensor:
        return (made(tokens, graph, mask).logits[mask] @ weights).sum()

    loss().backward()
    for name in names:
        parameter = made.get_parameter(name)
        step = torch.randn(parameter.shape, dtype=torch.float64) * 1e-6
        with torch.no_grad():
            parameter += step
            above = float(loss())
            parameter -= 2 * step
            below = float(loss())
            parameter += step
        assert parameter.grad is not None
        expected = float((parameter.grad * step).sum() * 2)
        assert above - below == pytest.approx(expected, rel=1e-3, abs=1e-10), name


def test_an_edge_to_nowhere_is_one_line() -> None:
    tokens, graph, mask = example()
    graph.targets[0, 1, 0] = NODES
    with pytest.raises(ShapeError, match="targets should be -1 to 6, got 7") as caught:
        model()(tokens, graph, mask)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", ["native", "torch", "blocks"])
def test_fused_paths(
    kind: str, space: str, causal: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C kernels and torch code, also in blocks of a few sources: outputs and every gradient as the
    reference has them."""
    if way != "native":
        monkeypatch.setattr("graph_machine.ops.native.library", lambda: None)
    if way == "blocks":
        monkeypatch.setattr("graph_machine.ops.backend.CPU_CHUNK", 200)
    tokens, graph, mask = example()
    found = {}
    for backend in ("reference", "fused"):
        made = model(SPEC.replace(causal=causal), referral=kind, address_space=space)
        made.backend = backend
        found[backend] = run(made, tokens, graph, mask)
    assert found["fused"].keys() == found["reference"].keys()
    for name, expected in found["reference"].items():
        ours = found["fused"][name]
        loose: dict[str, Any] = {} if name == "logits" else {"rtol": 1e-3, "atol": 1e-5}
        torch.testing.assert_close(ours, expected, **loose, msg=name)


def test_the_future_of_a_sequence_stays_hidden() -> None:
    """Given edges into the past and an empty edge over the past: later tokens change nothing."""
    spec = InputSpec(num_tokens=5, num_outputs=5, num_nodes=9, graph="sequence", causal=True)
    made = model(spec.replace(num_edge_categories=4))
    tokens = torch.randint(5, (1, 9), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 5
    before, after = made(tokens).logits, made(other).logits
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6:] != after[:, 6:]).any()


def test_there_are_no_slots_before_the_first_referral() -> None:
    """Slots that begin empty would be so many even edges, and dilute what the graph says."""
    made, (tokens, graph, mask) = model(), example()
    counts = {}

    def listener(name: str, tensor: Tensor) -> None:
        if name.endswith("address_ins"):
            counts[name] = tensor.shape[2]

    with listen(made, listener):
        made(tokens, graph, mask)
    assert counts == {
        "layers.0.edge.0.address_ins": 0,
        "layers.0.node.0.address_ins": 3,
        "layers.1.edge.0.address_ins": 3,
        "layers.1.node.0.address_ins": 3,
    }


@pytest.mark.parametrize("rounds", [1, 3])
def test_edges_carry_what_the_nodes_at_their_ends_hold(rounds: int) -> None:
    """Two neighbours, one edge of another kind to each: which edge leads to which node matters.

    Weights over edges are chosen before nodes are seen, so that a node without `edge_ends` reads
    the mixture of both edges and the mixture of both nodes, in whatever way they belong together.
    """
    targets = torch.tensor([[[1, 2], [-1, -1], [-1, -1]]])
    tokens = torch.tensor([[0, 1, 2]])
    settings: dict[str, Any] = {"num_layers": 1, "num_edge_sublayers": 0, "sharpener": "off"}
    settings |= {"attention_experts": "edge", "empty_edge": False, "core_layers": 1}
    graphs = [InputGraph(targets, torch.tensor([[kinds, [3, 3], [3, 3]]]), 4) for kinds in
              ([0, 1], [1, 0])]  # fmt: skip
    for ends in (False, True):
        made = model(edge_ends=ends, rounds=rounds, **settings)
        for module in made.modules():  # both edges count alike
            if isinstance(module, EdgeAugmentedAttention) and module.from_edges is not None:
                torch.nn.init.zeros_(module.from_edges.weights()["keys"])
        found = [made(tokens, graph).logits[:, 0] for graph in graphs]
        assert torch.allclose(*found, atol=1e-6) != ends


def test_a_number_on_an_edge_reaches_a_node() -> None:
    """Without edge values, a graph whose edges all carry the same number cannot show it."""
    spec = SPEC.replace(num_edge_categories=1, edge_features=1)
    targets = torch.tensor([[[1], [0]]])
    graphs = [
        InputGraph(targets, torch.zeros_like(targets), 1, torch.full((1, 2, 1, 1), number))
        for number in (1.0, 2.0)
    ]
    tokens = torch.zeros(1, 2, dtype=torch.long)
    # One given edge and nothing else to choose from: steering has no effect.
    settings: dict[str, Any] = {"num_layers": 1, "num_edge_sublayers": 0}
    settings["attention_experts"] = "edge"
    for values in (False, True):
        made = model(spec, edge_values=values, **settings)
        found = [made(tokens, graph).logits for graph in graphs]
        assert torch.allclose(*found) != values


def test_a_grid_has_five_given_edges() -> None:
    spec = InputSpec(num_tokens=5, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid")
    spec = spec.replace(num_edge_categories=6)
    made = model(spec, num_edges=2)
    tokens = torch.zeros(1, 9, dtype=torch.long)
    state = made.initial_state(tokens, None, None)
    assert state.given is not None
    assert torch.equal(state.given.targets[0], grid_graph(3, 3, 5).targets)
    assert made(tokens).logits.shape == (1, 9, 3)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"attention_experts": "node", "num_edge_sublayers": 0}, "given_edges"),
        ({"attention_experts": "node"}, "edge_values"),
        ({"given_edges": "first", "edge_ends": True}, "edge_ends"),
        ({"factor_temps": False, "global_heads": 1}, "global_heads"),
        ({"global_heads": 3}, "global_heads"),
    ],
)
def test_contradictions(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        model(**settings)
