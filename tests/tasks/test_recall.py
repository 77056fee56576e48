"""Associative recall: what is asked was told before, and can be looked up."""

from typing import Any

import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.config import RecallConfig
from graph_machine.lab.tasks.base import baseline_scores, make_task
from graph_machine.lab.tasks.recall import RecallTask
from graph_machine.models import GraphMachine

SMALL = RecallConfig(length=21, pairs=8, test_pairs=10, keys=10, values=5)


def make(**changes: Any) -> RecallTask:
    task = make_task(SMALL.replace(**changes))
    assert isinstance(task, RecallTask)
    return task


def test_every_query_was_told_and_no_key_twice() -> None:
    task = make()
    batch = task.batch(0, 8, 0)
    for tokens, answers, pairs in zip(batch.known_tokens, batch.answers, batch.groups["pairs"]):
        size = int(pairs)
        told = dict(zip(tokens[: 2 * size : 2].tolist(), tokens[1 : 2 * size : 2].tolist()))
        assert len(told) == size
        for query, answer in zip(tokens[2 * size :].tolist(), answers[2 * size :].tolist()):
            assert told[query] == 10 + answer
    assert set(batch.groups["pairs"]) == {2, 4, 6, 8}
    (tested,) = task.split_batches("test", 16, 16)
    assert set(tested.groups["pairs"]) == {2, 4, 6, 8, 10}


def test_looking_it_up_is_exact() -> None:
    found = baseline_scores(make(), "test", 64)["look it up"]
    assert found.summary()["example_accuracy"] == 1.0


@pytest.mark.parametrize("position", ["none", "sinusoidal", "rotary", "row-column"])
def test_no_model_sees_the_future(position: Any) -> None:
    task = make()
    batch = task.batch(1, 2, 0)
    config = ModelConfig(num_layers=2, d_node=8, d_edge=4, num_heads=2, position=position)
    model = GraphMachine(config, task.spec)
    changed = batch.known_tokens.clone()
    changed[:, 12:] = 0
    # What is not there at all makes no difference either: a sequence may be shorter.
    one, two, short = (
        model(tokens).logits for tokens in (batch.known_tokens, changed, batch.known_tokens[:, :12])
    )
    torch.testing.assert_close(one[:, :12], two[:, :12])
    torch.testing.assert_close(one[:, :12], short)


def test_text_form() -> None:
    task = make()
    example = task.parse("3=4 0=2 | 0 3 3")
    assert example.where.sum() == 3
    answers = task.look_up(example)[0].numpy()
    shown = task.show(example, answers, answers * 1.0)
    assert (shown.text, shown.valid) == ("2 4 4", None)
    assert task.text(example) == "3=4 0=2 | 0 3 3"
    asked = task.batch(0, 3, 0)
    assert torch.equal(task.parse(task.text(asked)).answers, asked.answers[:1])
    bad = ("3=4", "3=4 3=2 | 3", "3=² | 3", f"3={'4' * 5000} | 3", "3=4 | 0", "3 | 3", "30=1 | 30")
    for text in (*bad, "3=4 | x", "| 3"):
        with pytest.raises(DataError, match="Expected"):
            task.parse(text)
    answers = task.solve(example).answers
    assert answers is not None
    assert task.show(example, answers, answers * 1.0, check=True).verdict() == "right."
    answers[-1] = 0
    assert task.show(example, answers, answers * 1.0, check=True).verdict() == "wrong."


def test_settings_that_cannot_be() -> None:
    for setting, value in (("length", 32), ("keys", 3), ("test_pairs", 8)):
        with pytest.raises(ConfigError, match=setting):
            RecallConfig().replace(**{setting: value})
