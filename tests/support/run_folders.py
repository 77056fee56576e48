"""Synthetic run folders that look like those of training, for sweeps and reports."""

import json
from pathlib import Path
from typing import Any

from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.run_files import DataInfo, RunInfo


def make_run(
    root: Path,
    condition: str = "gm",
    seed: int = 0,
    accuracy: float | None = 0.9,
    *,
    budget: str = "cpu",
    config: ExperimentConfig | None = None,
    identity: str = "0123456789abcdef",
    source: str = "generated",
    status: str = "finished",
    result: dict[str, Any] | None = None,
    name: str = "",
) -> Path:
    """One run; without an accuracy it has no result. `name` sets another folder than usual."""
    config = config or config_for(condition, budget)
    folder = root / (name or f"{budget}/{condition}/seed-{seed}")
    folder.mkdir(parents=True)
    info = RunInfo(
        config=config.to_dict(),
        data=DataInfo(identity, source, 3000),
        seed=seed,
        condition=condition,
        budget=budget,
        started=f"2030-01-01T00:00:{seed:02d}+0000",
        error="TrainingError: the loss is not finite" if status == "failed" else None,
    )
    record = info.to_dict() | {"status": status if accuracy is None else "finished"}
    (folder / "run.json").write_text(json.dumps(record))
    steps = config.train.steps
    lines = [
        {
            "step": step,
            "kind": "eval",
            "loss": 1 - step / steps,
            "board_accuracy": (accuracy or 0.5) * step / steps,
            "cell_accuracy": 0.9,
            "seconds": step / 4.0 + seed,
        }
        for step in range(steps // 5, steps + 1, steps // 5)
    ]
    lines.append({"step": steps, "kind": "train", "loss": 0.1, "steps_per_second": 4.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if accuracy is not None:
        shown = {f"{n}_accuracy": {"title": f"{n}s", "share": True} for n in ("board", "cell")}
        values = {"board_accuracy": accuracy, "cell_accuracy": 0.95, "loss": 0.1, "metrics": shown}
        counts = {"parameters": 500_000, "steps": steps, "seconds": 10.0, "test_examples": 150}
        contents = values | counts
        (folder / "result.json").write_text(json.dumps(contents | (result or {})))
    return folder
