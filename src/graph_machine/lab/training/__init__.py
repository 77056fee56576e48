"""One training implementation for every condition."""

from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.training.devices import Interrupted
from graph_machine.lab.training.evaluate import evaluate
from graph_machine.lab.training.log import Sink
from graph_machine.lab.training.loop import Result, train
from graph_machine.lab.training.run import RunFolder, default_out

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
