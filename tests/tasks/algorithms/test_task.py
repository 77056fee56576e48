"""Algorithms as a task: what is asked, exact answers from the inputs alone, sizes, text."""

from typing import Any

import numpy as np
import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError, DataError, ShapeError
from graph_machine.lab.config import AlgorithmsConfig
from graph_machine.lab.tasks.algorithms.task import AlgorithmsTask
from graph_machine.lab.tasks.base import baseline_scores, make_task
from graph_machine.models import GraphMachine

KINDS = ("bfs", "paths", "components")
SMALL = AlgorithmsConfig(train_nodes=8, test_nodes="8,20", name_width=2)


def make(algorithm: str, **changes: Any) -> AlgorithmsTask:
    task = make_task(SMALL.replace(algorithm=algorithm, **changes))
    assert isinstance(task, AlgorithmsTask)
    return task


@pytest.mark.parametrize("algorithm", KINDS)
def test_networkx_agrees_on_every_size_and_family(algorithm: str) -> None:
    task = make(algorithm)
    found = baseline_scores(task, "test", 48)["exact"]
    assert found.summary()["example_accuracy"] == 1.0
    by_nodes, by_family = (found.by(grouping) for grouping in task.groupings)
    assert {size: part["examples"] for size, part in by_nodes.items()} == {"8": 24, "20": 24}
    assert list(by_family) == ["random", "tree", "grid", "ring"]


def test_guesses_are_told_beside_models() -> None:
    """Weights 1 and 0.5 and a node by itself; keys of two components."""
    task = make("paths")
    example = task.parse("0 0-1 1-2:0.5 3-4")
    assert example.graph is not None
    slots = task.baselines()["the lightest edge"](example)
    found = example.graph.targets[0, range(5), slots[0]]
    assert found.tolist() == [1, 2, 1, 4, 3]
    task = make("components")
    guess = task.baselines()["the largest key of the graph"]
    assert guess(task.parse("0.1,0.9,0.5,0.2 0-1 2-3")).tolist() == [[1, 1, 1, 1]]


def test_parts_make_components_a_question() -> None:
    """The largest key of the graph answers most of it where graphs are in one piece."""
    whole, cut = (baseline_scores(make("components", parts=parts), "test", 48) for parts in (1, 4))
    guess = "the largest key of the graph"
    assert whole[guess].summary()["node_accuracy"] > 0.75
    assert cut[guess].summary()["node_accuracy"] < 0.6
    assert cut["exact"].summary()["example_accuracy"] == 1.0
    with pytest.raises(ConfigError, match="parts should be 1 to 5"):
        SMALL.replace(parts=6)


@pytest.mark.parametrize("algorithm", KINDS)
def test_any_model_can_be_asked(algorithm: str) -> None:
    task = make(algorithm)
    batch = task.batch(0, 4, 0)
    assert batch.graph is not None
    assert 5 <= batch.where.shape[1] <= 8
    assert (batch.graph.num_edges, batch.graph.features is not None) == (8, algorithm == "paths")
    batch.graph.check()
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_heads=2)
    projected = {"attention_experts": "node", "num_edge_sublayers": 0}
    for change in (
        {},
        projected | {"project_input_edges": True},
        projected | {"num_edges": 0},
        {"core_layers": 1, "core_edge_sublayers": 1, "rounds": 2},
    ):
        model = GraphMachine(config.replace(**change), task.spec)
        logits = model(**batch.inputs()).logits
        task.losses(logits, batch).sum().backward()
        answers = task.decide(logits)
        assert answers.shape == batch.answers.shape
        if algorithm == "paths":
            # An empty slot is never chosen.
            assert (batch.graph.targets.gather(-1, answers.unsqueeze(-1)) >= 0).all()


def test_a_limit_takes_as_many_of_every_size() -> None:
    task = make("bfs")
    sizes = [(len(b), b.where.shape[1]) for b in task.split_batches("test", 100, 7)]
    assert sizes == [(4, 8), (3, 20)]
    assert task.sizes["test"] == 512
    whole = next(task.split_batches("test", 256))
    few = next(task.split_batches("test", 256, 8))
    assert torch.equal(few.answers, whole.answers[:4])


def test_text_forms() -> None:
    bfs = make("bfs")
    example = bfs.parse("0 0-1 1-2 3-4")
    shown = bfs.show(
        example,
        example.answers[0].numpy(),
        torch.ones(example.answers.shape[1]).numpy(),
        check=True,
    )
    assert (shown.text, shown.valid) == ("0 1 2 - -", True)
    paths = make("paths")
    example = paths.parse("0 0-1 1-2:0.5 0-2:2.5")
    shown = paths.show(
        example,
        example.answers[0].numpy(),
        torch.ones(example.answers.shape[1]).numpy(),
        check=True,
    )
    assert (shown.text, shown.valid) == ("0>0 1>0 2>1", True)
    components = make("components")
    example = components.parse("0.1,0.9,0.3,0.4 0-1 2-3")
    shown = components.show(
        example,
        example.answers[0].numpy(),
        torch.ones(example.answers.shape[1]).numpy(),
        check=True,
    )
    assert (shown.text, shown.valid) == ("0>1 1>1 2>3 3>3", True)


@pytest.mark.parametrize(
    ("algorithm", "text", "right", "wrong"),
    [
        # Both ways round a square are as long, also where the sums are rounded.
        ("paths", "0 0-1 0-2 1-3 2-3", ([0, 1, 1, 1], [0, 1, 1, 2]), [0, 1, 1, 0]),
        ("paths", "0 0-1:0.3 0-2:0.1 2-1:0.2", ([0, 1, 1], [0, 2, 1]), [0, 1, 2]),
        ("components", "0.9,0.9,0.1 0-1", ([0, 0, 2], [1, 1, 2]), [2, 0, 2]),
        ("components", "0.9,0.9,0.1 1-2", ([0, 1, 1],), [1, 1, 1]),
    ],
)
def test_every_right_answer_is_accepted(
    algorithm: str, text: str, right: tuple[list[int], ...], wrong: list[int]
) -> None:
    task = make(algorithm)
    example, sure = task.parse(text), np.ones(len(wrong))
    for answers in right:
        assert task.show(example, np.array(answers), sure, check=True).valid
    assert not task.show(example, np.array(wrong), sure, check=True).valid
    assert task.show(example, np.array(wrong), sure).valid is None


def test_keys_are_numbers() -> None:
    with pytest.raises(DataError, match="Expected keys that are numbers"):
        make("components").parse("0.1,nan 0-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected the source first, got ''"),
        ("x 0-1", "Expected the source first, got 'x'"),
        ("0,1 0-1", "Expected the number of the source first, got '0,1'"),
        ("0 0+1", r"Expected edges such as 0-1 or 0-1:0.5, got '0\+1'"),
        ("inf 0-1", "Expected the number of the source first, got 'inf'"),
        ("0 0-99999999", r"Expected at most 1,024 nodes \(0 to 1023\), got 100,000,000"),
        (f"0 0-{'9' * 5000}", "Expected edges such as 0-1"),
        ("0 0-1:0", "Expected weights above 0, got 0-1:0"),
        (f"0 0-1:0.{'0' * 60}1", "Expected weights above 0"),
        ("0 0-1 1-0:0.4", "Expected every edge once, got 1-0 twice"),
        ("0 1-1", "Expected edges between different nodes 0 to 1, got 1-1"),
        ("0 " + " ".join(f"0-{i}" for i in range(1, 10)), "Node 0 has more neighbours than"),
    ],
)
def test_text_that_is_no_graph(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make("bfs").parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": "tree,gird"}, r"families should be some of random, .*got \['gird'\]"),
        ({"test_nodes": "16,a"}, "test_nodes should look like 16,32,64, got '16,a'"),
        ({"test_nodes": "16,²"}, "test_nodes should look like 16,32,64, got '16,²'"),
        ({"train_nodes": 2}, "train_nodes should be at least 4"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SMALL.replace(**changes)


def test_more_neighbours_than_a_model_has_edges() -> None:
    task = make("bfs", degree=20)
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_edges=8, num_heads=2)
    with pytest.raises(ShapeError, match=r"21 edge slots .* set model\.num_edges=21"):
        GraphMachine(config, task.spec)(**task.batch(0, 2, 0).inputs())
