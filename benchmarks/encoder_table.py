"""Tables of what `encoder_tasks.py` found: `python benchmarks/encoder_table.py`.

Mean and standard deviation over the runs of a task and a model. Tasks and models are rows and
columns; what has not been trained is a dash.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parent / "results" / "encoder_tasks.jsonl"
CHOICE = 100  # the seed on which learning rates were chosen
MODELS = {
    "gm": "GraphEncoder",
    "gine": "GINE",
    "gps": "GPS",
    "gat": "GATv2",
    "transformer": "Transformer",
}
TASKS = {
    "digits": "digits",
    "diameter": "tree diameter, R²",
    "diameter larger": "the same, larger trees, R²",
    "mutag": "MUTAG",
    "proteins": "PROTEINS",
    "nci1": "NCI1",
    "bashapes": "BAShapes",
    "sbm": "SBM",
    "bfs": "bfs",
    "paths": "paths, R²",
    "components": "components",
}


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Every run of the file, of encoders with their defaults."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [each for each in found if not each["run"]["change"]]


def chosen(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs with the learning rate that was best on seed 100, without those that chose it."""
    return [each for each in runs if "rate" in each["run"] and each["run"]["seed"] != CHOICE]


def alike(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs asked for a number of parameters, and those that have it at the usual width."""
    asked = {x["run"]["task"]: x["run"]["parameters"] for x in runs if x["run"]["parameters"]}
    own = [x for x in runs if x["run"]["task"] in asked]
    near = [abs(x["parameters"] / asked[x["run"]["task"]] - 1) < 0.1 for x in own]
    return [x for x, close in zip(own, near, strict=True) if close or x["run"]["parameters"]]


def rates(runs: list[dict[str, Any]]) -> str:
    """What every learning rate reached on seed 100."""
    own = [each for each in runs if each["run"]["seed"] == CHOICE]
    lines = ["| | " + " | ".join(MODELS.values()) + " |", "| --- |" + " ---: |" * len(MODELS)]
    for name in dict.fromkeys(each["run"]["task"] for each in own):
        cells = []
        for model in MODELS:
            found = [x for x in own if (x["run"]["task"], x["run"]["model"]) == (name, model)]
            parts = (cell([each["scores"][""]], each["number"]) for each in found)
            cells.append(", ".join(parts) or "–")
        lines.append(f"| {TASKS[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(scores: list[float], number: bool) -> str:
    """Mean and spread: of R², or of accuracy in percent."""
    if not scores:
        return "–"
    scale, digits = (1, 2) if number else (100, 1)
    text = f"{scale * mean(scores):.{digits}f}"
    return text if len(scores) < 2 else f"{text} ± {scale * stdev(scores):.{digits}f}"


def table(runs: list[dict[str, Any]], *, parameters: bool) -> str:
    """Runs of one width, or those with about the same number of parameters."""
    same = [each for each in runs if each["run"]["parameters"] is None]
    chosen = alike(runs) if parameters else same
    lines = ["| | runs | CPU s | " + " | ".join(MODELS.values()) + " |"]
    lines.append("| --- | ---: | ---: |" + " ---: |" * len(MODELS))
    for name, label in TASKS.items():
        task, _, test = name.partition(" ")
        every = [each for each in chosen if each["run"]["task"] == task]
        for seconds in sorted({each["run"]["seconds"] for each in every}):
            own = [each for each in every if each["run"]["seconds"] == seconds]
            found = {
                model: [
                    each["scores"][f" {test}" if test else ""]
                    for each in own
                    if each["run"]["model"] == model
                ]
                for model in MODELS
            }
            cells = " | ".join(cell(scores, own[0]["number"]) for scores in found.values())
            most = max(len(scores) for scores in found.values())
            lines.append(f"| {label} | {most} | {seconds:g} | {cells} |")
    return "\n".join(lines)


def prices(runs: Iterable[dict[str, Any]]) -> str:
    """CPU time of a training step, with loader and optimiser, and the size of a model."""
    # Runs of a given number of steps did not measure their time.
    chosen = [x for x in runs if x["run"]["parameters"] is None and "steps" not in x["run"]]
    lines = ["| | " + " | ".join(MODELS.values()) + " |", "| --- |" + " ---: |" * len(MODELS)]
    for task in dict.fromkeys(name.partition(" ")[0] for name in TASKS):
        own = [each for each in chosen if each["run"]["task"] == task]
        by_model = [[each for each in own if each["run"]["model"] == model] for model in MODELS]
        if not own:
            continue
        steps = [
            f"{mean(1e3 * each['run']['seconds'] / each['steps'] for each in these):.0f} ms"
            if these
            else "–"
            for these in by_model
        ]
        lines.append(f"| {TASKS[task].removesuffix(', R²')} | " + " | ".join(steps) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    every = read()
    new = chosen(every)
    print(table(new, parameters=False), table(new, parameters=True), prices(new), sep="\n\n")
    print("\nSeed 100", rates(every), sep="\n\n")
