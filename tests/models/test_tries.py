"""Several tries: what breaks the rules is asked again, what obeys them stays."""

import pytest
import torch
from torch import Tensor

from graph_machine import open_model
from graph_machine.errors import ConfigError
from graph_machine.lab import opening
from graph_machine.lab.config import PointersConfig
from graph_machine.lab.opening import LoadedModel, answer_in_tries, check_tries, predict_in_tries
from graph_machine.lab.tasks.base import Task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.training import evaluate
from graph_machine.models.predict import AS_TRAINED, Rounds, answer


@pytest.fixture(scope="module")
def subject() -> LoadedModel:
    return open_model("gm-4x4")


@pytest.fixture(scope="module")
def task(subject: LoadedModel) -> Task:
    return subject.open_data(None)


@pytest.fixture(scope="module")
def batch(task: Task) -> Batch:
    return next(task.split_batches("test", 24))


def unlucky(subject: LoadedModel, calls: list[int], wrong: int):
    """A way of answering that is wrong on all examples for the first `wrong` calls."""

    def call(model: object, rounds: Rounds, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        outputs, used = answer(subject.model, rounds, inputs)
        calls.append(len(outputs))
        return (torch.zeros_like(outputs) if len(calls) <= wrong else outputs), used

    return call


def test_answers_of_another_form_are_turned_back(
    subject: LoadedModel, task: Task, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = answer(subject.model, AS_TRAINED, batch.inputs)[0].argmax(dim=-1)
    right = ((plain == batch.answers) | ~batch.where).all(dim=1)
    calls: list[int] = []
    monkeypatch.setattr(opening, "answer", unlucky(subject, calls, wrong=2))
    found = answer_in_tries(subject.model, task, batch, AS_TRAINED, 4)
    assert calls[:3] == [24, 24, 24]
    answers = found.outputs.argmax(dim=-1)
    solved = ((answers == batch.answers) | ~batch.where).all(dim=1)
    assert torch.equal(solved, found.valid)
    assert int(solved.sum()) >= int(right.sum()) - 1, "the third form is as easy as the first"
    assert set(found.tries[solved].tolist()) <= {3, 4}
    assert torch.equal(found.rounds, found.tries)  # a round a try: there is no core


def test_what_is_valid_at_once_stays(subject: LoadedModel, task: Task, batch: Batch) -> None:
    first = answer(subject.model, AS_TRAINED, batch.inputs)[0]
    found = answer_in_tries(subject.model, task, batch, AS_TRAINED, 8)
    once = found.tries == 1
    assert once.any()
    assert torch.equal(found.outputs[once], first[once])
    kept = ~found.valid  # nothing valid was found: the first answer is the answer
    assert torch.equal(found.outputs[kept], first[kept])
    again = answer_in_tries(subject.model, task, batch, AS_TRAINED, 8)
    assert torch.equal(found.outputs, again.outputs)


def test_tries_solve_more(subject: LoadedModel, task: Task) -> None:
    one, many = (
        evaluate(subject.model, task, "test", tries=number).summary()["board_accuracy"]
        for number in (1, 6)
    )
    assert many > one


def test_predictions_count_tries_and_keep_givens(
    subject: LoadedModel, task: Task, batch: Batch
) -> None:
    found = predict_in_tries(subject.model, task, batch, tries=3)
    assert found.tries is not None
    assert found.rounds is None  # no core, no rounds
    assert 1 <= found.tries.min() <= found.tries.max() <= 3
    assert batch.tokens is not None
    given = batch.tokens.numpy() > 0
    assert (found.answers[given] == batch.tokens.numpy()[given] - 1).all()
    assert not subject.model.training


def test_mistakes_are_one_line(task: Task) -> None:
    with pytest.raises(ConfigError, match="tries"):
        check_tries(task, 0)
    with pytest.raises(ConfigError, match="pointers"):
        check_tries(task_of(PointersConfig()), 2)
