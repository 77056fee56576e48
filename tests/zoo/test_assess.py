"""What is reported of a model: references on the same examples, also those that lack a metric."""

from pathlib import Path

from graph_machine.config import ModelConfig
from graph_machine.lab.cli.evaluate import report_text
from graph_machine.lab.config import TextConfig
from graph_machine.lab.opening import LoadedModel
from graph_machine.lab.tasks.base import make_task, task_of
from graph_machine.lab.zoo.assess import assess
from graph_machine.models import GraphMachine


def test_a_metric_that_needs_a_loss(tmp_path: Path) -> None:
    """Ways without a model have no loss, and bits per byte are made of it."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{number} is a number.\n" for number in range(200)))
    config = TextConfig(length=16, most=40_000)
    task = make_task(config, str(text))
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, d_edge=4, num_heads=2), task.spec)
    facts = {"seed": 0, "data": {"source": str(text), "identity": task.identity}}
    subject = LoadedModel(model, "a model", "gm", 0, task_of(config), facts, tmp_path)
    report = assess(subject, None, limit=8)
    assert report["references"]["pairs of bytes, counted"]["bits_per_byte"] > 0
    printed = report_text(report, task)
    assert "for reference, on the same windows" in printed
    assert "pairs of bytes, counted" in printed
