"""`graph-machine doctor`: what this machine will do with a model, and how far that is tested."""

import json as json_module

from graph_machine.lab.cli._options import options, read


@options
class Args:
    """Device, which implementation every op takes, settings that matter, what was never run."""

    device: str | None = None
    """cpu, cuda, cuda:1, mps, xpu; default: the accelerator if there is one"""
    json: bool = False
    """print as JSON"""


def main(argv: list[str]) -> int:
    args = read(Args, argv, "doctor")
    from graph_machine.lab.training.doctor import report
    from graph_machine.machine import choose_device

    sections = report(choose_device(args.device))
    if args.json:
        print(json_module.dumps({title: dict(lines) for title, lines in sections}, indent=1))
        return 0
    for title, lines in sections:
        print(title)
        for name, text in lines:
            print(f"  {name:<24} {text}")
    return 0
