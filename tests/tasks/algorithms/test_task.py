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
def test_exact_answers_of_every_size_and_family(algorithm: str) -> None:
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
    slots = task.baselines()["the lightest edge"](example)
    found = example.known_graph.targets[0, range(5), slots[0]]
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


@pytest.mark.parametrize("algorithm", KINDS)
def test_any_model_can_be_asked(algorithm: str) -> None:
    task = make(algorithm)
    batch = task.batch(0, 4, 0)
    assert 5 <= batch.where.shape[1] <= 8
    graph = batch.known_graph.check()
    assert (graph.num_edges, graph.features is not None) == (8, algorithm == "paths")
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_heads=2)
    projected = {"attention_experts": "node", "num_edge_sublayers": 0}
    for change in (
        {},
        projected | {"project_input_edges": True},
        projected | {"num_edges": 0},
        {"core_layers": 1, "core_edge_sublayers": 1, "rounds": 2},
    ):
        model = GraphMachine(config.replace(**change), task.spec)
        logits = model(**batch.inputs).logits
        task.losses(logits, batch).sum().backward()
        answers = task.decide(logits)
        assert answers.shape == batch.answers.shape
        if algorithm == "paths":
            # An empty slot is never chosen.
            assert (batch.known_graph.targets.gather(-1, answers.unsqueeze(-1)) >= 0).all()


def test_a_limit_takes_as_many_of_every_size() -> None:
    task = make("bfs")
    sizes = [(len(b), b.where.shape[1]) for b in task.split_batches("test", 100, 7)]
    assert sizes == [(4, 8), (3, 20)]
    assert task.sizes["test"] == 512
    whole = next(task.split_batches("test", 256))
    few = next(task.split_batches("test", 256, 8))
    assert torch.equal(few.answers, whole.answers[:4])


@pytest.mark.parametrize(
    ("algorithm", "text", "answer"),
    [
        ("bfs", "0 0-1 1-2 3-4", "0 1 2 - -"),
        ("paths", "0 0-1 1-2:0.5 0-2:2.5", "0>0 1>0 2>1"),
        ("components", "0.1,0.9,0.3,0.4 0-1 2-3", "0>1 1>1 2>3 3>3"),
    ],
)
def test_text_forms(algorithm: str, text: str, answer: str) -> None:
    task = make(algorithm)
    example = task.parse(text)
    answers = example.answers[0].numpy()
    shown = task.show(example, answers, np.ones(len(answers)), check=True)
    assert (shown.text, shown.valid) == (answer, True)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "source first"),
        ("x 0-1", "'x'"),
        ("0,1 0-1", "'0,1'"),
        ("0 0+1", r"'0\+1'"),
        ("inf 0-1", "'inf'"),
        ("0 0-99999999", "1,024"),
        (f"0 0-{'9' * 5000}", "0-1"),
        ("0 0-1:0", "above 0"),
        (f"0 0-1:0.{'0' * 60}1", "above 0"),
        ("0 0-1 1-0:0.4", "1-0 twice"),
        ("0 1-1", "1-1"),
        ("0 " + " ".join(f"0-{i}" for i in range(1, 10)), "Node 0"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make("bfs").parse(text)
    with pytest.raises(DataError, match="nan"):
        make("components").parse("0.1,nan 0-1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": "tree,gird"}, "gird"),
        ({"test_nodes": "16,a"}, "16,a"),
        ({"test_nodes": "16,²"}, "16,²"),
        ({"train_nodes": 2}, "train_nodes"),
        ({"parts": 6}, "1 to 5"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SMALL.replace(**changes)


def test_more_neighbours_than_a_model_has_edges() -> None:
    task = make("bfs", degree=20)
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_edges=8, num_heads=2)
    with pytest.raises(ShapeError, match="21"):
        GraphMachine(config, task.spec)(**task.batch(0, 2, 0).inputs)


def test_long_graphs_and_other_units_in_training_only() -> None:
    """A chain has one node at each distance; four in nine of the long graphs are chains."""
    plain, long = (make("bfs", train_nodes=16, long=share) for share in (0.0, 1.0))
    batch = long.make(3, 32, "train", 0.5)
    n = batch.answers.shape[1]
    chains = [row for row in batch.answers.tolist() if sorted(row) == list(range(n))]
    assert 8 <= len(chains) < 22
    tests = [next(task.split_batches("test", 8)).answers for task in (plain, long)]
    assert torch.equal(*tests)
    assert plain.open().identity == long.open().identity  # of what is tested
    before, after = (make("paths", most_scale=most).make(3, 8, "train", 0.5) for most in (1.0, 4.0))
    old, new = (None if one.graph is None else one.graph.features for one in (before, after))
    assert old is not None
    assert new is not None
    units = [b[x] / a[x] for a, b, x in zip(old, new, old != 0, strict=True)]
    assert all(torch.allclose(unit, unit[0]) and 1 <= unit[0] <= 4 for unit in units)
    assert torch.equal(before.answers, after.answers)
