"""metrics.jsonl when a run continues: readable lines stay, the rest is reported and set aside."""

import json
from pathlib import Path

from graph_machine.files import write_bytes


def truncate_metrics(path: Path, step: int) -> str | None:
    """Forget lines after `step`, and a last line that was cut short by a kill.

    Any other line that cannot be read is damage: the file as it was is kept beside, and the
    returned line says so.
    """
    if not path.exists():
        return None
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    steps = [step_of(line) for line in lines]
    kept = b"".join(line for line, at in zip(lines, steps) if at is not None and at <= step)
    bad = steps.count(None)
    told = None
    if bad:
        number = len(list(path.parent.glob(f"{path.stem}.damaged-*")))
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        write_bytes(aside, content)
        told = (
            f"{bad} of {len(lines)} lines of {path.name} could not be read and were left out; the "
            f"file as it was: {aside}"
        )
    if kept != content:
        write_bytes(path, kept)
    return told


def step_of(line: bytes) -> int | None:
    """The step of a metric line; None for what is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return step if type(step) is int else None
