"""Small models and sessions for the tests of the explorer."""

import numpy as np

from graph_machine.config import ModelConfig
from graph_machine.lab.config import SudokuConfig, TaskConfig
from graph_machine.lab.explorer.examples import Examples, LiveModel, PageExample
from graph_machine.lab.explorer.session import Session
from graph_machine.lab.tasks.base import Task, task_of
from graph_machine.models import GraphMachine
from support.recordings import board_spec

EASY = "...1.4...3...132"  # 4x4 with one solution
EASY_SOLVED = "3241142323144132"
SMALL = ModelConfig(d_node=8, num_layers=2, num_heads=3, d_attn_key=4, d_attn_value=4, d_ref_key=4)


def small_model(**settings: object) -> GraphMachine:
    """An untrained model on 4x4 boards."""
    return GraphMachine(SMALL.replace(**settings), board_spec()).eval()


def session_of(*models: GraphMachine, puzzle: str = EASY) -> Session:
    boxes = {16: "2x2", 36: "2x3", 81: "3x3"}
    tasks = [task_of(SudokuConfig(box=boxes[model.spec.num_nodes or 0])) for model in models]
    subjects = [LiveModel(model, task=task) for model, task in zip(models, tasks, strict=True)]
    task = subjects[0].task
    return Session(subjects, Examples(task, given=[example_of(task, puzzle)]))


def graph_session(config: TaskConfig, **settings: object) -> Session:
    """A small untrained GM on a task whose graphs are given."""
    task = task_of(config)
    model = GraphMachine(SMALL.replace(num_edges=8, **settings), task.spec)
    return Session([LiveModel(model, "gm", task)], Examples(task))


def example_of(task: Task, text: str) -> PageExample:
    """A text as an example whose answers are not known."""
    return PageExample(text, "example 0", task.parse(text), task, known=False)


def puzzle_of(text: str, box: str = "2x2") -> PageExample:
    """A puzzle as an example."""
    return example_of(task_of(SudokuConfig(box=box)), text)


def cells_of(text: str) -> np.ndarray:
    """The tokens of a 4x4 puzzle, with a batch axis."""
    tokens = puzzle_of(text).batch.tokens
    assert tokens is not None
    return tokens.numpy()
