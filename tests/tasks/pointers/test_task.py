"""Pointers as a task: batches, answers, the walk that solves it, its text form."""

from typing import Any

import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.config import PointersConfig
from graph_machine.lab.tasks.base import baseline_scores, make_task
from graph_machine.lab.tasks.pointers import PointersTask
from graph_machine.models import GraphMachine

SMALL = PointersConfig(nodes=12, train_hops=3, test_hops=8, name_width=2)


def make(**changes: Any) -> PointersTask:
    task = make_task(SMALL.replace(**changes))
    assert isinstance(task, PointersTask)
    return task


def test_batches_are_a_function_of_seed_and_step() -> None:
    task = make()
    one, again, other = task.batch(3, 4, 0), task.batch(3, 4, 0), task.batch(3, 4, 1)
    assert one.graph is not None
    assert again.graph is not None
    assert other.graph is not None
    assert torch.equal(one.graph.targets, again.graph.targets)
    assert not torch.equal(one.graph.targets, other.graph.targets)
    assert one.graph.check().num_edges == 2
    assert one.features is not None
    assert one.features.shape == (4, 12, 2)


def test_names_do_not_make_other_data() -> None:
    """GM without names and a Transformer with them stand in one table."""
    named, nameless = make(name_width=2), make(name_width=0)
    assert named.identity == nameless.identity
    assert named.identity != make(nodes=13).identity
    one, other = named.batch(0, 4, 0).graph, nameless.batch(0, 4, 0).graph
    assert one is not None
    assert other is not None
    assert torch.equal(one.targets, other.targets)


@pytest.mark.parametrize("stop", ["end", "count"])
def test_the_walk_is_exact_and_one_hop_is_not(stop: str) -> None:
    found = baseline_scores(make(stop=stop), "test", 64)
    assert found["exact"].summary()["node_accuracy"] == 1.0
    first = found["the first pointer"]
    assert first.summary()["node_accuracy"] < 0.6
    by_hops = first.by(PointersTask.groupings[0])
    assert list(by_hops) == ["1", "2", "3", "4", "6", "8"]
    assert by_hops["1"]["node_accuracy"] == 1.0


def test_training_stays_within_its_hops_and_the_test_asks_for_exactly_so_many() -> None:
    task = make()
    assert task.batch(0, 64, 0).groups["hops"].max() == 3
    batch = next(task.split_batches("test", 64))
    assert set(batch.groups["hops"]) == {1, 2, 3, 4, 6, 8}
    assert batch.where.any(dim=1).all()


def test_text_form() -> None:
    task = make()
    example = task.parse("0>3 1>1 2>0 3>1")
    reached = task.walk(example)[0].numpy()
    shown = task.show(example, reached, torch.ones(4).numpy(), check=True)
    assert shown.text == "0>1 1>1 2>1 3>1"
    assert shown.valid
    assert shown.draw(confidence=True).startswith("0>1 (100%)")
    counted = make(stop="count")
    assert counted.walk(counted.parse("2: 0>3 1>1 2>0 3>1"))[0].tolist() == [1, 1, 3, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected pointers such as 0>3"),
        ("0>1 1>x", "Expected pointers such as 0>3"),
        ("0>1 2>0", "one pointer for each node 0 to 1"),
        ("0>1 1>5", "one pointer for each node 0 to 1"),
        ("0>1 1>²", "Expected pointers such as 0>3"),
        ("3: 0>0", "no number of hops"),
        ("0>1 1>2 2>1 3>3", "pointers from node 0 lead into a circle"),
        (" ".join(f"{node}>0" for node in range(1025)), "at most 1,024 nodes"),
    ],
)
def test_text_that_is_no_graph(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make().parse(text)


def test_text_with_a_number_of_hops() -> None:
    counted = make(stop="count")
    assert counted.walk(counted.parse("3: 0>1 1>2 2>0"))[0].tolist() == [0, 1, 2]
    for text in ("0>1 1>0", "²: 0>1 1>0", "x: 0>1 1>0"):
        with pytest.raises(DataError, match="such as 3: 0>1 1>2 2>0"):
            counted.parse(text)


def test_a_longer_chain_than_in_training_is_walked_to_its_end() -> None:
    task = make()
    example = task.parse("0>0 " + " ".join(f"{node}>{node - 1}" for node in range(1, 30)))
    zeros = torch.zeros(30, dtype=torch.long).numpy()
    assert task.show(example, zeros, torch.ones(30).numpy(), check=True).valid


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="nodes should be at least 34, for chains of 32 hops"):
        PointersConfig(nodes=20)
    with pytest.raises(ConfigError, match="test_hops at least train_hops"):
        PointersConfig(train_hops=40)
    with pytest.raises(DataError, match="makes its examples itself; leave --data out"):
        make().open("file.txt")


def test_a_pointer_is_chosen_by_edges_where_there_are_any() -> None:
    task = make()
    batch = task.batch(0, 3, 0)
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_edges=2, num_heads=2)
    gm = GraphMachine(config, task.spec)
    logits = gm(**batch.inputs()).logits
    assert logits.shape == (3, 12, 12)
    task.losses(logits, batch).sum().backward()
    assert all(p.grad is not None for p in gm.parameters())
    plain = config.replace(attention_experts="node", num_edge_sublayers=0, num_edges=0)
    transformer = GraphMachine(plain, task.spec)
    assert transformer(**batch.inputs()).logits.shape == (3, 12, 12)
    assert not any("edge" in name for name, _ in transformer.readout.named_parameters())


def test_a_graph_machine_learns_it_in_a_few_steps() -> None:
    task = make(name_width=0)
    config = ModelConfig(num_layers=3, d_node=16, d_edge=8, num_edges=2, num_heads=2, qk_norm=True)
    model = GraphMachine(config, task.spec)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(60):
        batch = task.batch(step, 16, 0)
        loss = task.losses(model(**batch.inputs()).logits, batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = next(task.split_batches("eval", 64))
    right = task.score(model(**batch.inputs()).logits.argmax(dim=-1), batch)
    assert right["nodes_right"].sum() / right["nodes"].sum() > 0.95
