"""Other forms of the same examples: what is right in one form is right in the other."""

import pytest
import torch
from torch import Tensor

from graph_machine.config import JigsawConfig, MazeConfig, SudokuConfig, TaskConfig
from graph_machine.tasks.base import Task, task_of
from graph_machine.tasks.batch import Batch

TASKS: dict[str, TaskConfig] = {
    "sudoku": SudokuConfig(box="2x3", puzzles=60),
    "jigsaw": JigsawConfig(side=5, puzzles=40),
    "jigsaw-told": JigsawConfig(side=5, puzzles=40, told=True),
    "maze": MazeConfig(side=7, mazes=40),
}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return task_of(TASKS[request.param]).open()


def some(task: Task) -> Batch:
    return next(task.split_batches("train", 12))


def tokens_of(batch: Batch) -> Tensor:
    assert batch.tokens is not None
    return batch.tokens


def solved(task: Task, batch: Batch) -> Tensor:
    """Exact answers, where something is asked."""
    exact = list(task.baselines().values())[-1]
    return torch.where(batch.where, exact(batch), 0)


def test_a_solution_of_another_form_is_the_solution(task: Task) -> None:
    batch = some(task)
    form = task.disguise(batch, key=3)
    assert form is not None
    assert not torch.equal(tokens_of(form.batch), tokens_of(batch))
    answers = solved(task, form.batch)
    outputs = torch.nn.functional.one_hot(answers, task.spec.num_outputs).float()
    back = form.undo(outputs).argmax(dim=-1)
    assert torch.equal(torch.where(batch.where, back, 0), solved(task, batch))
    assert torch.equal(form.batch.where.sum(1), batch.where.sum(1))


def test_a_form_is_decided_by_its_key(task: Task) -> None:
    batch = some(task)
    forms = [task.disguise(batch, key=key) for key in (1, 1, 2)]
    tokens = [tokens_of(form.batch) for form in forms if form is not None]
    assert len(tokens) == 3
    assert torch.equal(tokens[0], tokens[1])
    assert not torch.equal(tokens[0], tokens[2])
