"""One training implementation for every condition."""

from graph_machine.tasks.scores import Scores
from graph_machine.training.evaluate import evaluate
from graph_machine.training.log import Sink
from graph_machine.training.loop import Result, train
from graph_machine.training.run import RunFolder, default_out
from graph_machine.training.signals import Interrupted

__all__ = [
    "Interrupted",
    "Result",
    "RunFolder",
    "Scores",
    "Sink",
    "default_out",
    "evaluate",
    "train",
]
