"""Pointers: chains against a walk of single hops, batches, answers, the text form, learning it."""

from typing import Any

import numpy as np
import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.config import PointersConfig
from graph_machine.lab.tasks.base import baseline_scores, make_task
from graph_machine.lab.tasks.pointers import PointersTask, chains, first_pointer, follow
from graph_machine.models import GraphMachine

SMALL = PointersConfig(nodes=12, train_hops=3, test_hops=8, name_width=2)


def make(**changes: Any) -> PointersTask:
    task = make_task(SMALL.replace(**changes))
    assert isinstance(task, PointersTask)
    return task


def walk(pointers: np.ndarray, node: int, hops: int) -> int:
    for _ in range(hops):
        node = int(pointers[node])
    return node


@pytest.mark.parametrize("hops", [0, 1, 2, 3, 7, 32])
def test_following_is_walking(hops: int) -> None:
    pointers = np.random.default_rng(0).integers(11, size=(3, 11))
    for row, nodes in zip(pointers, follow(pointers, hops), strict=True):
        assert nodes.tolist() == [walk(row, node, hops) for node in range(11)]


def test_chains_end_where_they_say() -> None:
    depth = np.array([1, 4, 9, 20])
    found = chains(np.random.default_rng(1), 4, 24, depth, ends=2)
    assert found.hops.max(axis=1).tolist() == depth.tolist()
    for pointers, ends, hops in zip(*found, strict=True):
        fixed = np.flatnonzero(pointers == np.arange(24))
        assert len(fixed) == 2
        for node in range(24):
            assert walk(pointers, node, int(hops[node])) == ends[node]
            assert ends[node] in fixed
            if hops[node]:  # not there any sooner
                assert walk(pointers, node, int(hops[node]) - 1) not in fixed


def test_ids_carry_no_information() -> None:
    """Where the end lies is even over the ids: chi-square with 15 degrees of freedom."""
    found = chains(np.random.default_rng(2), 200, 16, np.full(200, 5), ends=1)
    counts = np.bincount(found.ends[:, 0], minlength=16)
    assert ((counts - 12.5) ** 2 / 12.5).sum() < 37.7


def test_batches_are_a_function_of_seed_and_step() -> None:
    task = make()
    one, again, other = (first_pointer(task.batch(3, 4, seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    batch = task.batch(0, 64, 0)
    assert batch.known_graph.check().num_edges == 2
    assert batch.features is not None
    assert batch.features.shape == (64, 12, 2)
    assert batch.groups["hops"].max() == 3
    test = next(task.split_batches("test", 64))
    assert set(test.groups["hops"]) == {1, 2, 3, 4, 6, 8}
    assert test.where.any(dim=1).all()


def test_names_do_not_make_other_data() -> None:
    """GM without names and a Transformer with them stand in one table."""
    named, nameless = make(name_width=2), make(name_width=0)
    assert named.identity == nameless.identity != make(nodes=13).identity
    assert torch.equal(*(first_pointer(task.batch(0, 4, 0)) for task in (named, nameless)))


@pytest.mark.parametrize("stop", ["end", "count"])
def test_the_walk_is_exact_and_one_hop_is_not(stop: str) -> None:
    found = baseline_scores(make(stop=stop), "test", 64)
    assert found["exact"].summary()["node_accuracy"] == 1.0
    first = found["the first pointer"]
    assert first.summary()["node_accuracy"] < 0.6
    by_hops = first.by(PointersTask.groupings[0])
    assert list(by_hops) == ["1", "2", "3", "4", "6", "8"]
    assert by_hops["1"]["node_accuracy"] == 1.0


def test_text_form() -> None:
    task, counted = make(), make(stop="count")
    example = task.parse("0>3 1>1 2>0 3>1")
    shown = task.show(example, task.walk(example)[0].numpy(), np.ones(4), check=True)
    assert (shown.text, shown.valid) == ("0>1 1>1 2>1 3>1", True)
    assert shown.draw(confidence=True).startswith("0>1 (100%)")
    for text, reached in (("2: 0>3 1>1 2>0 3>1", [1, 1, 3, 1]), ("3: 0>1 1>2 2>0", [0, 1, 2])):
        assert counted.walk(counted.parse(text))[0].tolist() == reached
    # A longer chain than in training is walked to its end.
    long = task.parse("0>0 " + " ".join(f"{node}>{node - 1}" for node in range(1, 30)))
    assert task.show(long, np.zeros(30, dtype=np.int64), np.ones(30), check=True).valid


@pytest.mark.parametrize(
    ("stop", "text", "message"),
    [
        ("end", "", "0>3"),
        ("end", "0>1 1>x", "0>3"),
        ("end", "0>1 1>²", "0>3"),
        ("end", "0>1 2>0", "0 to 1"),
        ("end", "0>1 1>5", "0 to 1"),
        ("end", "3: 0>0", "no number of hops"),
        ("end", "0>1 1>2 2>1 3>3", "node 0 .* circle"),
        ("end", " ".join(f"{node}>0" for node in range(1025)), "1,024"),
        ("count", "0>1 1>0", "number of hops"),
        ("count", "²: 0>1 1>0", "number of hops"),
        ("count", "99: 0>1 1>0", "99"),
    ],
)
def test_bad_text(stop: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(stop=stop).parse(text)


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="34"):
        PointersConfig(nodes=20)
    with pytest.raises(ConfigError, match="test_hops"):
        PointersConfig(train_hops=40)
    with pytest.raises(DataError, match="--data"):
        make().open("file.txt")


def test_a_pointer_is_chosen_by_edges_where_there_are_any() -> None:
    task = make()
    batch = task.batch(0, 3, 0)
    config = ModelConfig(num_layers=1, d_node=8, d_edge=4, num_edges=2, num_heads=2)
    gm = GraphMachine(config, task.spec)
    logits = gm(**batch.inputs).logits
    assert logits.shape == (3, 12, 12)
    task.losses(logits, batch).sum().backward()
    assert all(p.grad is not None for p in gm.parameters())
    plain = config.replace(attention_experts="node", num_edge_sublayers=0, num_edges=0)
    transformer = GraphMachine(plain, task.spec)
    assert transformer(**batch.inputs).logits.shape == (3, 12, 12)
    assert not any("edge" in name for name, _ in transformer.readout.named_parameters())


def test_a_graph_machine_learns_it_in_a_few_steps() -> None:
    task = make(name_width=0)
    config = ModelConfig(num_layers=3, d_node=16, d_edge=8, num_edges=2, num_heads=2, qk_norm=True)
    model = GraphMachine(config, task.spec)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(60):
        batch = task.batch(step, 16, 0)
        loss = task.losses(model(**batch.inputs).logits, batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = next(task.split_batches("eval", 64))
    right = task.score(model(**batch.inputs).logits.argmax(dim=-1), batch)
    assert right["nodes_right"].sum() / right["nodes"].sum() > 0.95
