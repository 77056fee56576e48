"""What a GraphEncoder can be made of, and what a call may ask of it: no setting is ignored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from graph_machine import GraphEncoder, GraphMachine
from graph_machine.errors import CheckpointError, ConfigError, GraphError, GraphMachineError
from graph_machine.graphs import graph_from_edge_index
from support.cases import spread

SIZES: dict[str, Any] = {"d_node": 8, "d_edge": 4, "num_layers": 1, "num_edges": 3, "num_heads": 2}
RING = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
NO_EDGES: dict[str, Any] = {
    "attention_experts": "node",
    "num_edge_sublayers": 0,
    "num_edges": 0,
    "project_input_edges": False,
}


def make(**changes: Any) -> GraphEncoder:
    torch.manual_seed(0)
    encoder = GraphEncoder(**(SIZES | {"d_in": 2} | changes)).double().eval()
    spread(encoder, 0.4)
    return encoder


def nodes(n: int = 4) -> torch.Tensor:
    return torch.linspace(-1, 1, 2 * n, dtype=torch.float64).reshape(n, 2)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_in": 0}, "d_in should be at least 1, got 0"),
        ({"d_in": -2}, "d_in should be at least 1, got -2"),
        ({"d_in": 1.5}, "d_in should be a whole number, got 1.5"),
        ({"d_edge_in": True}, "d_edge_in should be a whole number, got True"),
        ({"d_in": None, "num_tokens": 0}, "num_tokens should be at least 1, got 0"),
        ({"num_positions": -1}, "num_positions should be at least 1, got -1"),
        ({"num_edge_types": 0}, "num_edge_types should be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout should be a share from 0 to below 1, got 1.0"),
        ({"padding": -1}, "padding should be a share from 0 on, or None, got -1"),
        ({"padding": "half"}, "padding should be a share from 0 on, or None, got 'half'"),
        ({"position": "sinusoidal"}, "position='sinusoidal' needs a grid, which graphs do not"),
        ({"position": "row-column"}, "position='row-column' needs a grid, which graphs do not"),
        ({"position": "rotary"}, "position='rotary' needs a grid, which graphs do not"),
        ({"body": "gine"}, "body='gine' is for GraphMachine"),
        ({"recurrent": 2, "rounds": 3}, "recurrent=2 says how many rounds there are; leave out"),
        ({"recurrent": 1.5}, "recurrent should be a whole number, got 1.5"),
        ({"recurrent": -1}, "recurrent should be at least 0, got -1"),
        ({"num_tokens": 5}, "d_in"),
        ({"overflow": "sample"}, "given_edges='first'"),
        ({"num_haeds": 3}, "'num_heads'"),
        ({"edge_types": 2}, r"no setting 'edge_types'\. Did you mean 'num_edge_types'\?"),
        ({"in_channels": 2}, r"no setting 'in_channels'\. Did you mean 'd_in'\? Known: d_in, num"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        GraphEncoder(**(SIZES | {"d_in": 2} | settings))
    assert str(caught.value).startswith("GraphEncoder: ")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "rounds", "message"),
    [
        ({}, 1, "rounds=1, but it was made without recurrent="),
        ({"recurrent": 2}, 0, "rounds should be at least 1, got 0"),
        ({"recurrent": 2}, 1.5, "rounds should be a whole number, got 1.5"),
        ({"recurrent": 2}, True, "rounds should be a whole number, got True"),
    ],
)
def test_rounds_that_cannot_be(settings: dict[str, Any], rounds: Any, message: str) -> None:
    encoder = make(**settings)
    graph = graph_from_edge_index(RING, num_nodes=4, num_edges=3)
    calls = (
        lambda: encoder(None, RING, rounds=rounds),  # said before anything else is looked at
        lambda: encoder.encode(nodes(), RING, rounds=rounds),
        lambda: encoder.dense_state(nodes().unsqueeze(0), graph, rounds=rounds),
    )
    for call in calls:
        with pytest.raises(ConfigError, match=message):
            call()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("top", [0, -1, 1.5, True, None])
def test_tops_that_cannot_be(top: Any) -> None:
    for encoder in (make(), make(**NO_EDGES)):
        with pytest.raises(GraphError, match=f"top should be a whole number from 1 on, got {top}"):
            encoder.encode(nodes(), RING, top=top)


@pytest.mark.parametrize("space", ["weight", "logit", "sparse", "compressed"])
def test_weights_are_shares_of_the_whole_address(space: str) -> None:
    encoder = make(address_space=space)
    whole = encoder.encode(nodes(), RING, top=4)
    assert whole.edge_weights is not None
    assert whole.edge_targets is not None
    assert_close(whole.edge_weights.sum(dim=-1), torch.ones(4, 3, dtype=torch.float64))
    assert (whole.edge_weights[..., 0] < 0.99).any()
    for top in (1, 2, 3):
        some = encoder.encode(nodes(), RING, top=top)
        assert_close(some.edge_weights, whole.edge_weights[..., :top])
        assert some.edge_targets is not None
        assert torch.equal(some.edge_targets, whole.edge_targets[..., :top])


def test_progress_of_training_reaches_the_space() -> None:
    annealed = {"sparse_s": 2, "sparse_s_start": 4, "gumbel_tau_start": 1.0, "anneal": 0.5}
    encoder = make(address_space="sparse", **annealed)
    widths = []
    for fraction in (0.0, 1.0):
        encoder.set_progress(fraction)
        found = encoder.encode(nodes(), RING, top=4).edge_targets
        assert found is not None
        widths.append(int((found >= 0).sum(dim=-1).max()))
    assert widths == [4, 2]
    make(**NO_EDGES).set_progress(0.5)


def test_reinforce_needs_the_policy() -> None:
    hard = {"address_space": "hard", "sharpener": "off"}
    encoder = make(**hard)
    assert encoder(nodes(), RING).isfinite().all()
    encoder.train()
    with pytest.raises(ConfigError, match="policy"):
        encoder(nodes(), RING)
    graph = graph_from_edge_index(RING, num_nodes=4, num_edges=3)
    addresses = encoder.dense_state(nodes().unsqueeze(0), graph).addresses
    assert addresses is not None
    assert addresses.policy is not None
    through = make(**hard, estimator="straight-through").train()
    through(nodes(), RING).sum().backward()


def test_positions_of_the_dense_form() -> None:
    graph = graph_from_edge_index(RING, num_nodes=4, num_edges=3)
    assert make(num_positions=4)(nodes().unsqueeze(0), graph).isfinite().all()
    with pytest.raises(GraphError, match="num_positions = 3"):
        make(num_positions=3)(nodes().unsqueeze(0), graph)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.tensor([[0, 9], [1, 2]]), "node ids should be 0 to 3, got 0 to 9"),
        (RING.T, r"edge_index should be \(2, e\), got \(4, 2\)"),
        (RING.double(), "edge_index should hold whole numbers, got torch.float64"),
    ],
)
def test_edges_are_checked_even_if_nothing_reads_them(
    edge_index: torch.Tensor, message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        make(**NO_EDGES)(nodes(), edge_index)
    with pytest.raises(GraphError, match=r"edge 1 \(\[1, 2\]\) leads from graph 0 to graph 1"):
        make(**NO_EDGES)(nodes(), RING, None, torch.tensor([0, 0, 1, 1]))


def test_edges_to_padding_pass_unchecked() -> None:
    graph = graph_from_edge_index(RING, num_nodes=4, num_edges=3)
    mask = torch.tensor([[True, True, True, False]])
    with pytest.raises(GraphError, match="node_mask"):
        make()(nodes().unsqueeze(0), graph, mask)
    assert make(check=False)(nodes().unsqueeze(0), graph, mask).isfinite().all()


@pytest.mark.usefixtures("unchecked")
def test_a_whole_data_instead_of_its_tensors() -> None:
    data = pytest.importorskip(
        "torch_geometric.data",
        reason="torch_geometric is not installed; with the extra 'pyg', it is tested",
    )
    whole, encoder = data.Data(x=nodes(), edge_index=RING), make()
    for given in (whole, data.Batch.from_data_list([whole])):
        assert_close(encoder(given), encoder(nodes(), RING))
        with pytest.raises(GraphError, match="alone"):
            encoder(given, RING)
    with pytest.raises(GraphError, match="HeteroData"):
        encoder(data.HeteroData())


def test_a_sample_of_edges_is_the_same_in_eval_mode() -> None:
    hub = torch.stack([torch.zeros(9, dtype=torch.long), torch.arange(1, 10)])
    encoder = make(overflow="sample", given_edges="first")
    once = encoder(nodes(10), hub)
    assert all(torch.equal(encoder(nodes(10), hub), once) for _ in range(5))
    encoder.train()
    assert not all(torch.equal(encoder(nodes(10), hub), once) for _ in range(5))


STAR = torch.tensor([[0, 0, 0, 1, 2], [1, 2, 3, 0, 3]])
TYPES = torch.tensor([0, 1, 2, 1, 0])


@pytest.mark.parametrize("given", ["always", "first"])
@pytest.mark.parametrize("residual", [True, False])
def test_given_edges_are_a_set(residual: bool, given: str) -> None:
    """Slots of `first` have numbers: slot h keeps its features and receives head h."""
    settings = {"num_edges": 5, "num_edge_types": 3, "d_edge_in": 1, "num_layers": 2}
    encoder = make(**settings, edge_residual=residual, given_edges=given, empty_edge=False)
    features = torch.linspace(-1, 1, 5).unsqueeze(-1)
    found = encoder(nodes(), STAR, features, edge_type=TYPES)
    order = torch.tensor([2, 4, 1, 0, 3])
    turned = encoder(nodes(), STAR[:, order], features[order], edge_type=TYPES[order])
    assert torch.allclose(turned, found, atol=1e-9) is (given == "always" or not residual)


@pytest.mark.parametrize("direction", ["out", "in", "both", "undirected"])
def test_self_loops_and_multi_edges_in_any_order(direction: str) -> None:
    encoder = make(d_edge_in=1, num_edges=2, direction=direction)
    edges = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 1, 0, 2, 2, 2]])
    features = torch.linspace(-1, 1, 6)
    found = encoder(nodes(), edges, features)
    order = torch.tensor([2, 5, 1, 4, 0, 3])
    assert_close(encoder(nodes(), edges[:, order], features[order]), found)
    assert not torch.allclose(encoder(nodes(), edges[:, :-1], features[:-1]), found)


@pytest.mark.parametrize("kind", ["joint", "conditional", "preaggregated"])
def test_any_degree(kind: str) -> None:
    """No edges, a complete graph, one node; slots say nothing about degree."""
    encoder = make(num_edges=2, referral=kind)
    everything = torch.ones(9, 9).nonzero().T
    graphs = [(9, everything), (9, RING[:, :0]), (1, RING[:, :0]), (1, RING[:, :1] * 0)]
    x = torch.cat([nodes(n) for n, _ in graphs])
    batch = torch.repeat_interleave(torch.tensor([n for n, _ in graphs]))
    starts = [0, 9, 18, 19]
    edges = torch.cat([e + start for (_, e), start in zip(graphs, starts, strict=True)], dim=1)
    together = encoder(x, edges, None, batch)
    for (n, own), start in zip(graphs, starts, strict=True):
        assert_close(together[start : start + n], encoder(nodes(n), own))


def test_degrees_that_differ_by_a_thousand() -> None:
    torch.manual_seed(0)
    encoder = small(num_edges=2).eval()
    star = torch.stack([torch.zeros(1000, dtype=torch.long), torch.arange(1, 1001)])
    edges = torch.cat([star, RING + 1001], dim=1)
    batch = torch.repeat_interleave(torch.tensor([1001, 4]))
    x = torch.randn(1005, 4)
    together = encoder(x, edges, None, batch)
    assert_close(together[1001:], encoder(x[1001:], RING))
    assert together.isfinite().all()


def test_dropout_is_for_training() -> None:
    plain, encoder = make(), make(dropout=0.5)
    assert torch.equal(encoder(nodes(), RING), plain(nodes(), RING))
    encoder.train()
    found = [encoder(nodes(), RING) for _ in range(2)]
    assert not torch.equal(*found)
    found[0].sum().backward()
    assert encoder.arguments["dropout"] == 0.5


TRIANGLE = torch.tensor([[0, 1, 2], [1, 2, 0]])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: GraphEncoder(16, 32), "by name"),
        (lambda: GraphEncoder(d_in=4, backend="cuda"), "cuda"),  # type: ignore[arg-type]
        (lambda: small()(torch.randn(3, 4), TRIANGLE, edge_weight=torch.ones(3)), "d_edge_in=1"),
        (lambda: small()(torch.randn(3, 4), TRIANGLE, edge_atr=torch.ones(3)), "'edge_attr'"),
        (lambda: small()(torch.randn(3, 4), TRIANGLE, generator=3), "torch.Generator"),
        (
            lambda: small()(
                torch.nested.nested_tensor([torch.randn(3, 4)], layout=torch.jagged), TRIANGLE
            ),
            "nested",
        ),
        (lambda: reading_tokens()(torch.zeros(3), TRIANGLE), "float32"),
        (lambda: reading_tokens()(torch.zeros(3, dtype=torch.complex64), TRIANGLE), "complex64"),
    ],
)
def test_easy_mistakes_are_one_line(call: Callable[[], object], word: str) -> None:
    with pytest.raises(GraphMachineError, match=word) as caught:
        call()
    assert "\n" not in str(caught.value)


def small(**more: Any) -> GraphEncoder:
    return GraphEncoder(d_in=4, d_node=8, num_layers=1, **more)


def reading_tokens() -> GraphEncoder:
    return GraphEncoder(num_tokens=5, d_node=8, num_layers=1)


def test_the_reference_can_be_asked_for() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    out = small(backend="reference")(x, TRIANGLE).square().sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    first.square().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sharpener": "learned", "recurrent": 2},
        {"address_space": "compressed", "decoder": "position", "num_positions": 5},
    ],
)
def test_reset_parameters_is_the_constructor_again(settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    encoder = small(**settings)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.fill_(7.0)
    encoder.reset_parameters()
    for name, tensor in encoder.state_dict().items():
        assert tensor.shape == before[name].shape
        assert not bool((tensor == 7.0).any()), name


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    encoder = small(direction="both", recurrent=2, num_heads=2).eval()
    encoder.save_pretrained(tmp_path)
    again = GraphEncoder.from_pretrained(tmp_path)
    x = torch.randn(3, 4)
    assert torch.equal(again(x, TRIANGLE), encoder(x, TRIANGLE))
    assert again.config == encoder.config
    assert again.config.given_edges == "always"
    with pytest.raises(CheckpointError, match="graph-machine checkpoint"):
        GraphMachine.from_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"both"', '"boti"'))
    with pytest.raises(CheckpointError, match="damaged"):
        GraphEncoder.from_pretrained(tmp_path)


def test_encoders_saved_before_global_heads(tmp_path: Path) -> None:
    """One head in four is global where edges stay; encoders from before have none."""
    assert GraphEncoder(d_node=64).config.global_heads == 2
    assert GraphEncoder(d_node=64, given_edges="first").config.global_heads == 0
    assert GraphEncoder(d_node=64, address_space="sparse").config.global_heads == 0
    assert GraphEncoder(d_node=64, factor_temps=False).config.global_heads == 0
    encoder = small(num_heads=4, global_heads=0)
    del encoder.arguments["global_heads"]
    encoder.save_pretrained(tmp_path)
    assert GraphEncoder.from_pretrained(tmp_path).config == encoder.config


def test_encoders_saved_before_given_edges(tmp_path: Path) -> None:
    """Their arguments do not name them: they had the paper's edges."""
    old = {"given_edges": "first", "empty_edge": False, "edge_values": False}
    encoder = small(**old).eval()
    encoder.arguments = {n: v for n, v in encoder.arguments.items() if n not in old}
    encoder.save_pretrained(tmp_path)
    again = GraphEncoder.from_pretrained(tmp_path)
    assert again.config == encoder.config
    x = torch.randn(3, 4)
    assert torch.equal(again(x, TRIANGLE), encoder(x, TRIANGLE))
