"""`graph-machine doctor`: what this machine will do with a model, and how far that is tested."""

import json

from graph_machine.lab.cli._options import Doctor
from graph_machine.lab.training.doctor import report
from graph_machine.machine import choose_device


def main(args: Doctor) -> int:
    sections = report(choose_device(args.device))
    if args.json:
        print(json.dumps({title: dict(lines) for title, lines in sections}, indent=1))
        return 0
    for title, lines in sections:
        print(title)
        for name, text in lines:
            print(f"  {name:<24} {text}")
    return 0
