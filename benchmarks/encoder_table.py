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


def cell(scores: list[float], number: bool) -> str:
    """Mean and spread: of R², or of accuracy in percent."""
    if not scores:
        return "–"
    scale, digits = (1, 2) if number else (100, 1)
    text = f"{scale * mean(scores):.{digits}f}"
    return text if len(scores) < 2 else f"{text} ± {scale * stdev(scores):.{digits}f}"


def table(runs: Iterable[dict[str, Any]], *, parameters: bool) -> str:
    """Runs of one width, or those with about the same number of parameters."""
    chosen = [each for each in runs if (each["run"]["parameters"] is not None) == parameters]
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
    print(table(every, parameters=False), table(every, parameters=True), prices(every), sep="\n\n")
