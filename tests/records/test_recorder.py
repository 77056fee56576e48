"""A recording is the model's own computation, and recording changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.records import Record, estimate, record, recording
from graph_machine.lab.records.naming import AXES
from graph_machine.lab.tasks.base import make_task
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen, tapped_paths
from support.cases import KINDS, StackSizes, batched, make_stack, make_state, ring
from support.recordings import TRANSFORMER, board_batch, boards, small_model

CONFIGS: dict[str, dict[str, Any]] = {
    "gm": {},
    "transformer": TRANSFORMER,
    "conditional": {"referral": "conditional"},
    "preaggregated": {"referral": "preaggregated"},
    "edge-only": {"attention_experts": "edge"},
    "referral-node-only": {"referral_experts": "node"},
    "logit": {"address_space": "logit"},
    "top-4": {"top_s": 4},
    "sparse": {"address_space": "sparse"},
    "compressed": {"address_space": "compressed"},
    "hard": {"address_space": "hard", "sharpener": "off"},
    "two-roles": {"separate_roles": True},
    "no-temps": {"factor_temps": False, "sharpener": "off"},
    "one-edge-sublayer": {"num_edge_sublayers": 1},
    "static": {"num_edge_sublayers": 0},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_kind_of_model_is_recorded(name: str) -> None:
    model = small_model(**CONFIGS[name])
    tokens, answers = boards()
    plain = model(tokens).logits
    made = record(model, tokens, solutions=answers, half=False)
    assert all(sub.tap is None for sub in tapped_paths(model).values())
    torch.testing.assert_close(model(tokens).logits, plain, rtol=0, atol=0)
    assert made.has_edges == (name != "transformer")
    sizes = {"sample": 4, "source": 16, "target": 16, "slot": 6, "e2_slot": 6}
    for path in made.paths:
        assert path.name in AXES, f"{path}: its axes should be told in naming.py"
        axes = made.axes[str(path)]
        for axis, size in zip(axes, made[str(path)].shape, strict=True):
            assert size == sizes.get(axis, size), f"{path}: {axis} is {size}"
    assert {path.layer for path in made.paths} == {0, 1}
    edge_layers = {path.layer for path in made.paths if path.sublayer == "edge"}
    assert len(edge_layers) == model.config.edge_sublayers
    if name == "transformer":  # it has no edges at all
        assert {path.name for path in made.paths} == {
            "node_factor_temps", "node_factors", "weights", "n2_values", "node_features",
        }  # fmt: skip


@pytest.mark.parametrize("kind", ["gm", "conditional", "transformer"])
@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-6), (True, 2e-3)])
def test_recorded_weights_reproduce_the_outputs(kind: str, half: bool, tolerance: float) -> None:
    """With every factor scrambled, the recorded weights alone bring the outputs back."""
    model = small_model(**CONFIGS[kind])
    tokens, _ = boards()
    plain = model(tokens).logits
    made = record(model, tokens, half=half)

    def replay(path: str, tensor: Tensor) -> Tensor | None:
        name = path.rpartition(".")[2]
        if name.endswith("_factors"):
            return torch.randn_like(tensor)
        return torch.from_numpy(made[path]).to(tensor.dtype) if name.endswith("weights") else None

    def scramble(path: str, tensor: Tensor) -> Tensor | None:
        return torch.randn_like(tensor) if path.endswith("_factors") else None

    with listen(model, replay):
        again = model(tokens).logits
    with listen(model, scramble):
        scrambled = model(tokens).logits
    torch.testing.assert_close(again, plain, rtol=tolerance, atol=tolerance)
    assert (scrambled - plain).abs().max() > 10 * tolerance


def test_choice_of_names_layers_samples_and_sources() -> None:
    model, (tokens, answers) = small_model(), boards()
    whole = record(model, tokens, solutions=answers)
    names = ("n2_*", "layers.1.node.0.weights")
    choice: dict[str, Any] = {"layers": [1], "samples": [3, 1], "sources": [5, 0], "names": names}
    part = record(model, tokens, solutions=answers, **choice)
    assert {p.name for p in part.paths} > {"n2_weights", "weights", "n2_edge_factors"}
    assert {p.layer for p in part.paths} == {1}
    assert part.samples == [3, 1]
    assert part.sources == [5, 0]
    path = "layers.1.edge.0.n2_weights"
    np.testing.assert_allclose(part[path], whole[path][[3, 1]][:, :, [5, 0]], atol=1e-6)
    for name in ("tokens", "solutions", "answers", "targets"):
        mine, theirs = part.inputs(name), whole.inputs(name)
        assert mine is not None
        assert theirs is not None
        np.testing.assert_array_equal(mine, theirs[[3, 1]])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"samples": [4]}, "samples are 0 to 3, got 4"),
        ({"samples": []}, "no samples"),
        ({"sources": [16]}, "sources are 0 to 15"),
        ({"layers": [2]}, "layers are 0 to 1"),
        ({"names": ("n3_weights",)}, "no tensor fits n3_weights"),
    ],
)
def test_wrong_choices(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        record(small_model(), boards()[0], **choice)


def test_batches_do_not_matter_and_training_mode_comes_back() -> None:
    model, (tokens, _) = small_model().train(), boards()
    one, many = (record(model, tokens, batch_size=size, half=False) for size in (4, 1))
    assert model.training
    for name in one.axes:
        np.testing.assert_allclose(one[name], many[name], atol=1e-5, err_msg=name)


def test_half_where_it_does_not_show() -> None:
    model, (tokens, _) = small_model(), boards()
    half, full = (record(model, tokens, half=value) for value in (True, False))
    assert half.num_bytes < 0.65 * full.num_bytes
    for path in half.paths:
        name = str(path)
        np.testing.assert_allclose(half[name], full[name], atol=1e-3, err_msg=name)
    # log(1e-8) needs more digits than a half has.
    assert half.tensors["layers.0.edge.0.n2_edge_factors"].dtype == np.float32


@pytest.mark.parametrize("choice", [{}, {"sources": [0], "names": ("*weights",)}, {"half": False}])
def test_estimate_is_an_upper_bound(choice: dict[str, Any]) -> None:
    model, (tokens, _) = small_model(), boards()
    size = record(model, tokens, **choice).num_bytes
    assert size <= estimate(model, tokens, **choice) <= 2 * size


@pytest.mark.parametrize("kind", KINDS)
def test_any_module_and_graph(kind: Any) -> None:
    """A user's own stack over a user's own graph, two forward passes on one tape."""
    size = StackSizes()
    stack = make_stack(size, kind=kind, dtype=torch.float32)
    model = torch.nn.Sequential(torch.nn.Identity(), stack)
    states = [make_state(batched(ring(7), 2), size, dtype=torch.float32) for _ in range(2)]
    with recording(model, names=("address_*", "n2_weights")) as tape:
        for state in states:
            stack(state)
    made = tape.record()
    assert made.samples == [0, 1, 2, 3]
    assert made.nodes == 7
    assert made.grid is None
    assert made["layers.2.edge.0.address_outs"].shape == (4, 7, size.num_edges, 7)
    assert made.label(3) == "n3"
    np.testing.assert_allclose(made.find("s2l2r1", 3).sum(), 1, atol=1e-2)


def test_two_stacks_keep_their_names() -> None:
    stacks = torch.nn.ModuleDict({"a": make_stack(), "b": make_stack()})
    with recording(stacks, names=("n2_weights",), layers=[0]) as tape:
        for stack in stacks.values():
            stack(make_state(batched(ring(5), 1)))
    made = tape.record()
    assert [p.prefix for p in made.paths] == ["a", "b"]


def test_what_is_asked_and_the_regions_of_a_task_are_kept(tmp_path: Path) -> None:
    task = make_task(JigsawConfig(side=4, puzzles=40))
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), task.spec)
    batch = task.batch(0, 3, 0)
    choice: dict[str, Any] = {"samples": [2, 0], "task": task, "names": ("weights",)}
    made = record(model, batch, **choice)
    assert made.num_bytes <= estimate(model, batch, **choice)
    found = Record.load(made.save(tmp_path / "a.rec.safetensors"))
    assert found.where is not None
    assert found.regions is not None
    np.testing.assert_array_equal(found.where, batch.where[[2, 0]].numpy())
    np.testing.assert_array_equal(found.regions, task.example_regions(batch)["region"][[2, 0]])
    assert found.meta["task"] == task.config.to_dict()
    bare = record(model, batch, task=task.config.to_dict(), names=("weights",))
    assert bare.regions is None
    assert record(small_model(), boards()[0]).where is None
    assert record(small_model(), board_batch()).regions is None
