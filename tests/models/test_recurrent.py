"""Models with a recurrent core: rounds of a call, every address space, old models untouched."""

from typing import Any

import pytest
import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.models import GraphMachine
from graph_machine.models.predict import check_count
from support.recordings import board_spec
from support.runs import TINY
from tolerances import assert_close

SPEC = InputSpec(
    num_tokens=5, num_outputs=4, num_nodes=16, grid=(4, 4), graph="grid", num_edge_categories=6
)
TOKENS = torch.arange(32).reshape(2, 16) % 5
NAMES = [
    name
    for name in CONDITIONS
    if name.startswith(("gm-", "transformer-")) and name.endswith(("-recurrent", "-referral"))
]


def build(name: str = "gm-recurrent", **model: Any) -> GraphMachine:
    torch.manual_seed(0)
    config = CONDITIONS[name].change(TINY).model.replace(init="torch", **model)
    return GraphMachine(config, SPEC)


def test_recurrent_conditions_are_beyond_the_paper() -> None:
    assert all(CONDITIONS[name].beyond_paper for name in NAMES)
    assert all(CONDITIONS[name].config.model.qk_norm for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_rounds_and_the_logits_of_each(name: str) -> None:
    model = build(name)
    out = model(TOKENS, rounds=5, keep_rounds=5)
    assert len(out.round_logits) == 5
    assert torch.equal(out.logits, out.round_logits[-1])
    for rounds in (1, 3):
        assert_close(model(TOKENS, rounds=rounds).logits, out.round_logits[rounds - 1])
    assert_close(model(TOKENS).logits, model(TOKENS, rounds=model.config.rounds).logits)


@pytest.mark.parametrize(
    "model",
    [
        {"address_space": "logit"},
        {"address_space": "sparse", "sparse_s": 4},
        {"address_space": "compressed"},
        {"address_space": "hard", "sharpener": "off", "referral": "joint"},
        {"top_s": 3},
        {"position": "rotary"},
        {"core_edge_sublayers": 2},
        {"core_state": "gated", "core_input": "none"},
    ],
)
def test_every_space_and_option_trains_through_rounds(model: dict[str, Any]) -> None:
    built = build(**model)
    out = built.train()(TOKENS, entropies=True, rounds=3, grad_rounds=2, keep_rounds=2)
    torch.stack(out.round_logits).square().mean().backward()
    assert out.entropies.attention_node is not None
    reached = {n for n, p in built.named_parameters() if p.grad is not None and p.grad.any()}
    core = {name for name, _ in built.named_parameters() if name.startswith("core.")}
    assert {name for name in core if ".node." in name and "attention.out" in name} <= reached


def on_given_graphs(**spec: Any) -> tuple[GraphMachine, dict[str, Any], dict[str, Any]]:
    """A model, and the same inputs for it alone and with four nodes of padding."""
    torch.manual_seed(0)
    given = SPEC.replace(num_nodes=None, grid=None, graph="given", **spec)
    model = GraphMachine(build().config, given).eval()
    graph = build().input_graph(None, 2, 16)
    wide = torch.zeros(2, 20, dtype=torch.long)
    wide[:, :16] = TOKENS
    targets = torch.full((2, 20, graph.targets.shape[-1]), -1)
    targets[:, :16] = graph.targets
    categories = torch.zeros_like(targets)
    categories[:, :16] = graph.categories
    mask = torch.arange(20).expand(2, 20) < 16
    padded = type(graph)(targets, categories, graph.num_categories)
    alone = {"tokens": TOKENS, "graph": graph}
    return model, alone, {"tokens": wide, "graph": padded, "node_mask": mask}


def test_a_causal_model_stays_causal_through_rounds() -> None:
    spec = SPEC.replace(num_outputs=5, grid=None, graph="sequence", causal=True)
    torch.manual_seed(0)
    model = GraphMachine(build().config, spec).eval()
    other = TOKENS.clone()
    other[:, 10:] = 0
    assert_close(model(TOKENS, rounds=3).logits[:, :10], model(other, rounds=3).logits[:, :10])


def test_a_core_survives_saving(tmp_path: object) -> None:
    model = build("gm-recurrent-referral").eval()
    again = GraphMachine.from_pretrained(model.save_pretrained(f"{tmp_path}/model"))
    assert_close(again(TOKENS, rounds=4).logits, model(TOKENS, rounds=4).logits)


def test_without_a_core_nothing_is_new() -> None:
    plain = GraphMachine(CONDITIONS["gm"].change(TINY).model, SPEC)
    assert plain.core is None
    assert not [name for name in plain.state_dict() if "core" in name]
    assert plain(TOKENS).round_logits == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"rounds": 0}, "rounds should be at least 1, got 0"),
        ({"rounds": 100_001}, "at most 100,000, got 100,001"),
        ({"grad_rounds": 0}, "grad_rounds should be at least 1, got 0"),
        ({"keep_rounds": -1}, "keep_rounds should be at least 0, got -1"),
        ({"rounds": 3, "keep_rounds": 4}, "keep_rounds should be at most rounds = 3, got 4"),
    ],
)
def test_rounds_of_a_call_have_to_fit(call: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()(TOKENS, **call)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"rounds": 4}, "core_layers"),
        ({"core_edge_sublayers": 1}, "core_layers"),
        ({"core_layers": 1, "rounds": 0}, "at least 1, got 0"),
    ],
)
def test_configs_of_a_core_have_to_fit(settings: dict[str, int], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ModelConfig(**settings)  # pyrefly: ignore
    with pytest.raises(ConfigError, match=r"2\.5"):
        check_count("rounds", 2.5, 1, 9)


def test_without_a_core_no_rounds_can_be_asked_for() -> None:
    plain = GraphMachine(CONDITIONS["gm"].change(TINY).model, SPEC)
    for name in ("rounds", "grad_rounds", "keep_rounds"):
        with pytest.raises(ConfigError, match=f"{name}: this model has no recurrent core"):
            plain(TOKENS, **{name: 1})
    with pytest.raises(ConfigError, match="core"):
        plain.iterate(TOKENS)  # at once, not in the first round


def test_a_model_s_own_file_does_not_ask_for_hours() -> None:
    model = GraphMachine(ModelConfig(num_layers=1, core_layers=1, rounds=100_000), board_spec())
    tokens = torch.zeros(1, 16, dtype=torch.long)
    with pytest.raises(ConfigError, match="--rounds"):
        model.predict(tokens)
    assert model.predict(tokens, rounds=2).rounds == 2
