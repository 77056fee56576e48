"""run.json: what is known of the run that a model comes from. The one place that reads it."""

from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError
from graph_machine.files import read_object
from graph_machine.plugins import load_remembered

RUN_FILE = "run.json"
FORMAT = "graph-machine-run"
VERSION = 1


def read_run(folder: Path) -> dict[str, Any]:
    """The checked contents of run.json; your own conditions and tasks are registered afterwards."""
    path = folder / RUN_FILE
    try:
        found = read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"No run here (there is no {RUN_FILE}): {folder}") from None
    if (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        raise CheckpointError(f"Not a run of format {FORMAT}, version {VERSION}: {path}")
    for key in ("config", "data"):
        if not isinstance(found.get(key), dict):
            raise CheckpointError(f"{RUN_FILE} does not describe a run: it lacks '{key}': {path}")
    load_remembered(found.get("imports"), path)
    return found


def run_above(folder: Path) -> Path | None:
    """The run folder that a model folder or checkpoint lies in (or is), if any."""
    return next((p for p in (folder, *folder.parents[:2]) if (p / RUN_FILE).is_file()), None)
