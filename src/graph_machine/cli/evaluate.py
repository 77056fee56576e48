"""`graph-machine evaluate`: accuracy of a trained model."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from graph_machine.tasks.base import Task, task_of
from graph_machine.tasks.scores import Metric
from graph_machine.training.devices import choose_device
from graph_machine.zoo.assess import assess, load_subject


@dataclass(frozen=True)
class Args:
    """A task's metrics of a model, in total and by group (rating, clues), with 95% intervals."""

    model: Annotated[str, tyro.conf.Positional]
    """run folder, checkpoint folder, or the name of a model"""
    data: str | None = None
    """puzzle file or store; default: the test split of the model's own run"""
    limit: int | None = None
    """only the first N puzzles"""
    batch_size: int = 256
    device: str | None = None
    """cpu, cuda, ...; default: the accelerator if there is one"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    json: bool = False
    """print JSON, for programs"""


def _value(part: dict[str, Any], metric: Metric) -> str:
    low_high = part.get("intervals", {}).get(metric.name)
    if not metric.is_share:
        return f"{part[metric.name]:10.4g}"
    text = f"{part[metric.name]:7.2%}"
    return text + (f"  ({low_high[0]:.2%} to {low_high[1]:.2%})" if low_high else "")


def render(report: dict[str, Any], task: Task) -> str:
    """The report as text."""
    word, first = task.examples_word, task.metrics[0]
    lines = [
        f"{report['model']}: {report['parameters']:,} parameters",
        f"{report['examples']:,} {word}: {report['data']}",
        "",
        *(f"{metric.title:<13} {_value(report, metric)}" for metric in task.metrics),
        f"loss          {report['loss']:7.4f}",
        f"speed         {report['examples_per_second']:,.0f} {word}/s",
    ]
    for name, mix in report["mixes"].items():
        lines.append(f"natural mix   {_value(mix, first)}  {first.title}, weighted as in {name}")
    for by in task.groupings:
        if report["groups"][by.group]:
            lines += ["", f"{first.title} by {by.title}"]
            lines += [
                f"  {label:<10}  {part['examples']:>9,}  {_value(part, first)}"
                for label, part in report["groups"][by.group].items()
            ]
    if report["references"]:
        lines += ["", f"for reference, the same {word} solved by"]
        lines += [
            f"  {name:<12}" + "".join(f"  {m.title} {_value(part, m)}" for m in task.metrics)
            for name, part in report["references"].items()
        ]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    args = tyro.cli(Args, args=argv, prog="graph-machine evaluate")
    subject = load_subject(args.model)
    subject.model.to(choose_device(args.device))
    report = assess(
        subject,
        args.data,
        limit=args.limit,
        batch_size=args.batch_size,
        precision=args.precision,
    )
    assert subject.task is not None
    print(json.dumps(report, indent=2) if args.json else render(report, task_of(subject.task)))
    return 0
