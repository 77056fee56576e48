"""`graph-machine evaluate`: accuracy of a trained model."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from graph_machine.training.devices import choose_device
from graph_machine.zoo.assess import assess, load_subject


@dataclass(frozen=True)
class Args:
    """Board and cell accuracy of a model, by rating band and clue count, with 95% intervals."""

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


def _share(part: dict[str, Any], name: str = "board") -> str:
    interval = part.get(f"{name}_interval")
    text = f"{part[f'{name}_accuracy']:7.2%}"
    return text + (f"  ({interval[0]:.2%} to {interval[1]:.2%})" if interval else "")


def render(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [
        f"{report['model']}: {report['parameters']:,} parameters",
        f"{report['puzzles']:,} puzzles: {report['data']}",
        "",
        f"boards        {_share(report)}",
        f"cells         {_share(report, 'cell')}",
        f"loss          {report['loss']:7.4f}",
        f"speed         {report['puzzles_per_second']:,.0f} puzzles/s",
    ]
    mix = report["natural_mix"]
    if mix is not None:
        lines.append(f"natural mix   {_share(mix)}  boards, weighted as in Sudoku-3M")
    for title, key in (("rating", "bands"), ("clues", "by_clues")):
        if report[key]:
            lines += ["", f"boards by {title}"]
            lines += [
                f"  {label:<10}  {part['puzzles']:>9,}  {_share(part)}"
                for label, part in report[key].items()
            ]
    if report["references"]:
        lines += ["", "for reference, the same puzzles solved by"]
        lines += [
            f"  {name:<12}  boards {_share(part)}  cells {part['cell_accuracy']:7.2%}"
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
    print(json.dumps(report, indent=2) if args.json else render(report))
    return 0
