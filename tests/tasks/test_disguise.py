"""Other forms of the same examples: what is right in one form is right in the other."""

import pytest
import torch
from torch import Tensor

from graph_machine.lab.config import JigsawConfig, MazeConfig, SudokuConfig, TaskConfig
from graph_machine.lab.tasks.base import Task, task_of
from graph_machine.lab.tasks.batch import Batch

TASKS: dict[str, TaskConfig] = {
    "sudoku": SudokuConfig(box="2x3", puzzles=60),
    "jigsaw": JigsawConfig(side=5, puzzles=40),
    "jigsaw-regions": JigsawConfig(side=5, puzzles=40, regions_in_tokens=True),
    "maze": MazeConfig(side=7, mazes=40),
}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return task_of(TASKS[request.param]).open()


def some(task: Task) -> Batch:
    return next(task.split_batches("train", 12))


def tokens_of(batch: Batch) -> Tensor:
    return batch.known_tokens


def solved(task: Task, batch: Batch) -> Tensor:
    """Exact answers, where something is asked."""
    exact = list(task.baselines().values())[-1]
    return torch.where(batch.where, exact(batch), 0)


def test_a_solution_of_another_form_is_the_solution(task: Task) -> None:
    batch = some(task)
    form = task.disguise(batch, number=3)
    assert form is not None
    assert not torch.equal(tokens_of(form.batch), tokens_of(batch))
    answers = solved(task, form.batch)
    outputs = torch.nn.functional.one_hot(answers, task.spec.num_outputs).float()
    back = form.undo(outputs).argmax(dim=-1)
    assert torch.equal(torch.where(batch.where, back, 0), solved(task, batch))
    assert torch.equal(form.batch.where.sum(1), batch.where.sum(1))


def test_a_form_is_decided_by_its_number(task: Task) -> None:
    batch = some(task)
    forms = [task.disguise(batch, number) for number in (2, 2, 3)]
    tokens = [tokens_of(form.batch) for form in forms if form is not None]
    assert len(tokens) == 3
    assert torch.equal(tokens[0], tokens[1])
    assert not torch.equal(tokens[0], tokens[2])


def test_a_maze_has_each_of_its_eight_forms_once() -> None:
    task = task_of(TASKS["maze"]).open()
    batch = some(task)[:1]
    forms = [task.disguise(batch, number) for number in range(1, 9)]
    places = {tuple(form.places[0].tolist()) for form in forms if form is not None}
    assert len(places) == 8
    assert task.disguise(batch, 9) is None
