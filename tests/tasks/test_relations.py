"""Relations along paths: two algebras, files as CLUTRR's, batches that ask about a pair."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.config import RelationsConfig
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.relation_walks import NONE
from graph_machine.lab.tasks.relations import RelationsTask, kinship, random_group


@pytest.mark.parametrize("seed", range(4))
def test_tables_of_groups(seed: int) -> None:
    table = random_group(4, seed).table
    r = len(table)
    assert np.array_equal(np.sort(table, axis=0), np.tile(np.arange(r)[:, None], r))
    assert np.array_equal(table[table], table[:, table])  # associative


def test_the_table_of_kinship_does_not_contradict_itself() -> None:
    """(a b) c is a (b c), wherever both are known."""
    words, table, _ = kinship()
    assert len(set(words)) == 20
    a, b, c = np.indices((20, 20, 20))
    left = np.where(table[a, b] == NONE, NONE, table[table[a, b], c])
    right = np.where(table[b, c] == NONE, NONE, table[a, table[b, c]])
    both = (left != NONE) & (right != NONE)
    assert both.sum() > 100
    assert np.array_equal(left[both], right[both])


def followed(task: RelationsTask, example: Batch) -> int:
    """What follows from an example's path, by the table, from its first node on."""
    words, table, _ = task.algebra
    *steps, query = task.text(example).split()
    follow = {edge.split("-")[0]: edge.split("-")[1].split(":") for edge in steps}
    node, end = query.split("?")
    node, word = follow[node]
    found = words.index(word)
    while node != end:
        node, word = follow[node]
        found = int(table[found, words.index(word)])
    return found


@pytest.mark.parametrize("algebra", ["kinship", "group"])
def test_paths_are_made_by_their_number_of_steps(algebra: str) -> None:
    task = make_task(RelationsConfig().replace(algebra=algebra, name_width=0))
    assert isinstance(task, RelationsTask)
    train = task.batch(0, 8, seed=1)
    assert set(train.groups["steps"]) == {2, 3}
    test = next(task.split_batches("test", 32))
    assert set(test.groups["steps"]) == set(range(2, 11))
    assert test.node_mask is not None
    assert test.node_mask.sum(dim=1).tolist() == (test.groups["steps"] + 1).tolist()
    test.known_graph.check()
    for row in range(8):
        assert followed(task, test[[row]]) == int(test.answers[row, 0])
    assert torch.equal(test.answers, next(task.split_batches("test", 32)).answers)


def test_arriving_edges_say_nothing_about_what_follows() -> None:
    """A node sees the same before and after the path goes on; the text is the same as ever."""
    task = make_task(RelationsConfig(view="arriving", name_width=0))
    short, long = (
        task.parse(text)
        for text in ("0-1:father 1-2:sister 0?2", "0-1:father 1-2:sister 2-3:son 0?3")
    )
    assert task.text(long) == "0-1:father 1-2:sister 2-3:son 0?3"
    assert torch.equal(short.known_tokens, long.known_tokens[:, :3])
    assert torch.equal(short.known_graph.targets, long.known_graph.targets[:, :3])
    assert torch.equal(short.known_graph.categories, long.known_graph.categories[:, :3])
    assert short.pairs is not None
    assert short.pairs.tolist() == [[[2, 0]]]


def test_branches_are_for_training_and_change_no_answer() -> None:
    plain, more = (
        make_task(RelationsConfig(branches=branches, name_width=0)) for branches in (0, 2)
    )
    before, after = (task.batch(3, 16, seed=1) for task in (plain, more))
    assert torch.equal(before.answers, after.answers)
    assert before.pairs is not None
    assert after.pairs is not None
    assert torch.equal(before.pairs, after.pairs)
    assert after.num_nodes == before.num_nodes + 2
    assert torch.equal(*(next(task.split_batches("test", 18)).answers for task in (plain, more)))
    assert next(more.split_batches("test", 18)).num_nodes == 11


def test_training_paths_grow_by_paths_in_place_of_edges() -> None:
    plain, task = (
        make_task(RelationsConfig(algebra="group", grown_steps=most, name_width=0))
        for most in (0, 6)
    )
    assert isinstance(task, RelationsTask)
    batch = task.batch(0, 64, seed=1)
    assert set(batch.groups["steps"]) == {2, 3, 4, 5, 6}
    assert torch.equal(batch.answers, plain.batch(0, 64, seed=1).answers)
    for row in range(64):
        assert followed(task, batch[[row]]) == int(batch.answers[row, 0])
    assert torch.equal(*(next(each.split_batches("test", 18)).answers for each in (plain, task)))


def test_training_walks_come_back_to_a_node() -> None:
    """In a group, every way to a node then gives the same relation, and the answer is unchanged."""
    task = make_task(RelationsConfig(algebra="group", points=3, returns=1.0, name_width=0))
    assert isinstance(task, RelationsTask)
    table, rng = task.algebra.table, np.random.default_rng(0)
    identity = int(np.flatnonzero(table[:, 0] == 0)[0])
    walks = [task.path(rng, steps=2 + i % 2) for i in range(200)]
    changed = 0
    for before, after in zip(walks, task.enlarged(walks, rng), strict=True):
        relations = {after.query[0]: identity}
        found = identity
        for (_, node), kind in zip(after.edges, after.types, strict=True):
            found = int(table[found, kind])
            assert relations.setdefault(node, found) == found
        assert relations[after.query[1]] == after.target == before.target
        assert len(relations) == max(map(max, after.edges)) + 1  # nodes are numbered from 0
        changed += len(relations) < len(before.edges) + 1
    assert 40 < changed < 160, changed


def test_a_batch_asks_about_the_pair() -> None:
    task = make_task(RelationsConfig())
    example = task.parse("0-1:father 1-2:sister 0?2")
    assert task.text(example) == "0-1:father 1-2:sister 0?2"
    assert example.pairs is not None
    assert example.pairs.tolist() == [[[0, 2]]]
    assert example.known_tokens.tolist() == [[1, 0, 2]]
    assert example.known_graph.targets[0].tolist() == [[0, 1, -1], [1, 0, 2], [2, 1, -1]]
    father, against = 0, 20 + 0
    assert example.known_graph.categories[0, :2, 1].tolist() == [father, against]
    assert example.features is not None
    assert example.features.shape == (1, 3, 8)
    aunt = kinship().words.index("aunt")
    assert task.show(example, np.array([aunt]), np.array([1.0])).text == "aunt"
    for text in ("0-1:father", "0-1:boss 0?1", "0-1 0?1", "0?1"):
        with pytest.raises(DataError):
            task.parse(text)


def write(folder: Path, name: str, *rows: dict[str, object]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_files_as_those_of_clutrr(tmp_path: Path) -> None:
    row: dict[str, object] = {"edges": [[0, 1], [1, 2]], "types": ["father", "sister"]}
    row |= {"query": [0, 2], "target": "aunt"}
    write(tmp_path, "train.jsonl", *[row] * 40)
    with pytest.raises(DataError, match="test-2"):
        make_task(RelationsConfig(), str(tmp_path))
    longer = row | {"edges": [[0, 1], [1, 2], [2, 3]], "types": ["son", "son", "son"]}
    write(tmp_path, "test-2.jsonl", *[row] * 6)
    write(tmp_path, "test-3.jsonl", *[longer] * 6)
    task = make_task(RelationsConfig(), str(tmp_path))
    assert task.sizes == {"train": 38, "eval": 2, "test": 12}
    batch = next(task.split_batches("test", 16, limit=4))
    assert batch.groups["steps"].tolist() == [2, 2, 3, 3]
    assert batch.node_mask is not None
    assert task.batch(0, 8, 0).num_nodes == 3
    single = row | {"edges": [[0, 1]], "types": ["aunt"], "query": [0, 1]}
    write(tmp_path, "train.jsonl", *[row, single] * 20)
    grown = make_task(RelationsConfig(grown_steps=5), str(tmp_path))
    assert set(grown.batch(0, 16, 0).groups["steps"]) == {2}  # nothing makes a father or a sister
    write(tmp_path, "train.jsonl", row, row | {"target": "boss"})
    with pytest.raises(DataError, match=r"line 2: .*boss"):
        make_task(RelationsConfig(), str(tmp_path))
    write(tmp_path, "train.jsonl", {"edges": []})
    with pytest.raises(DataError, match="line 1"):
        make_task(RelationsConfig(), str(tmp_path))
    with pytest.raises(DataError, match=r"train\.jsonl"):
        make_task(RelationsConfig(), str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="test_steps"):
        RelationsConfig(train_steps=4, test_steps=3)
