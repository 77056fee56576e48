"""`graph-machine evaluate`: accuracy of a trained model."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from graph_machine.errors import ConfigError, count_of
from graph_machine.lab.cli._options import Evaluate
from graph_machine.lab.cli.solve import check_settles
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.opening import open_model
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.scores import Metric
from graph_machine.lab.zoo.assess import assess, assess_rounds
from graph_machine.machine import choose_device
from graph_machine.models.predict import Rounds


def _value(part: dict[str, Any], metric: Metric) -> str:
    if part[metric.name] is None:  # a reference without this metric
        return "-"
    low_high = part.get("intervals", {}).get(metric.name)
    if not metric.is_share:
        return f"{part[metric.name]:10.4g}"
    text = f"{part[metric.name]:7.2%}"
    return text + (f"  ({low_high[0]:.2%} to {low_high[1]:.2%})" if low_high else "")


def _trained_on(report: dict[str, Any], task: Task) -> list[str]:
    """The number of examples that the model was trained on; its own test split has none."""
    if "trained_on" not in report:
        return []
    count, word = report["trained_on"], task.examples_word
    if type(task).seen_in_training is Task.seen_in_training:
        return [f"trained on    not counted for {task.name}: some of these {word} may be among it"]
    if count is None:
        return ["trained on    unknown: the data that the model was trained on is not here"]
    warning = ", so accuracy on new ones may be lower" if count else ""
    part = f"{task.seen_part} of " if task.seen_part else ""
    return [f"trained on    {part}{count:,} of these {word}{warning}"]


def report_text(report: dict[str, Any], task: Task) -> str:
    """The report as text."""
    word, first = task.examples_word, task.metrics[0]
    lines = [
        f"{report['model']}: {report['parameters']:,} parameters",
        f"{report['examples']:,} {word}: {report['data']}",
        *_trained_on(report, task),
        "",
        *(f"{metric.title:<13} {_value(report, metric)}" for metric in task.metrics),
        f"loss          {report['loss']:7.4f}",
        f"speed         {report['examples_per_second']:,.0f} {word}/s",
    ]
    if "rounds" in report:
        rounds = report["rounds"]
        lines.append(f"rounds        {rounds['mean']:.1f} (trained with {rounds['trained']})")
    if "tries" in report:
        tries = report["tries"]
        after = ", ".join(f"{number}: {share:.1%}" for number, share in tries["after"].items())
        lines.append(f"tries         {tries['mean']:.2f} (at most {tries['most']})")
        lines.append(f"              {first.title} by number of tries: {after}")
    for name, mix in report["mixes"].items():
        lines.append(f"natural mix   {_value(mix, first)}  {first.title}, weighted as in {name}")
    for by in task.groupings:
        if report["groups"][by.group]:
            lines += ["", f"{first.title} by {by.title}"]
            lines += _group_lines(report["groups"][by.group], task.metrics)
    if report["references"]:
        lines += ["", f"for reference, on the same {word}"]
        width = max(12, *map(len, report["references"]))
        lines += [
            f"  {name:<{width}}" + "".join(f"  {m.title} {_value(part, m)}" for m in task.metrics)
            for name, part in report["references"].items()
        ]
    return "\n".join(lines)


def _group_lines(parts: dict[str, dict[str, Any]], metrics: Sequence[Metric]) -> list[str]:
    """A line per group: how many, the deciding metric with its interval, then the others."""
    first, *others = metrics
    decided = {label: _value(part, first) for label, part in parts.items()}
    label_width, width = max(10, *map(len, parts)), max(map(len, decided.values()))
    return [
        f"  {label:<{label_width}}  {part['examples']:>9,}  {decided[label]:<{width}}"
        + "".join(f"  {other.title} {_value(part, other)}" for other in others)
        for label, part in parts.items()
    ]


def rounds_text(report: dict[str, Any], task: Task) -> str:
    """Accuracy against rounds as text."""
    word = task.examples_word
    count = next(iter(report["rounds"].values()))["examples"]  # the same after every round
    lines = [f"{report['model']}: {count:,} {word}, {report['data']}", *_trained_on(report, task)]
    lines += [f"trained with {count_of(report['trained'], 'rounds')}", ""]
    for number, part in report["rounds"].items():
        shares = "".join(f"  {m.title} {_value(part, m)}" for m in task.metrics)
        lines.append(f"  {number:>5} rounds{shares}")
    return "\n".join(lines)


def main(args: Evaluate) -> int:
    numbers = () if args.rounds is None else parse_numbers(args.rounds, "--rounds", least=1)
    if args.plot is not None and len(numbers) < 2:
        raise ConfigError("--plot draws accuracy against rounds: give several, --rounds 4,8,16.")
    for name, given in {"until-stable": args.until_stable, "tries": args.tries > 1}.items():
        if given and len(numbers) > 1:
            raise ConfigError(f"--{name} goes with one number of --rounds, the most to take.")
    subject = open_model(args.model)
    subject.model.to(choose_device(args.device))
    how: dict[str, Any] = {"limit": args.limit, "batch_size": args.batch_size}
    how |= {"precision": args.precision}
    if len(numbers) > 1:
        report, text = assess_rounds(subject, args.data, numbers, **how), rounds_text
    else:
        rounds = Rounds(numbers[0] if numbers else None, args.until_stable)
        check_settles(rounds, subject.model)
        report = assess(subject, args.data, rounds=rounds, tries=args.tries, **how)
        text = report_text
    task = subject.known_task
    print(json.dumps(report, indent=2) if args.json else text(report, task))
    if args.plot is not None:
        from graph_machine.lab.reports.curves import draw_rounds

        parts = report["rounds"]
        lines = {m.title: [part[m.name] for part in parts.values()] for m in task.metrics}
        shown = [int(number) for number in parts]
        draw_rounds(lines, shown, report["trained"], args.plot, f"{args.model}: {report['data']}")
        # Beside JSON, which is for programs.
        print(f"{args.plot}: accuracy against rounds", file=sys.stderr if args.json else sys.stdout)
    return 0
