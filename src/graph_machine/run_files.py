"""run.json: what is known of a run. The one place that reads it and says what it must hold."""

from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError, GraphMachineError
from graph_machine.files import read_object
from graph_machine.plugins import load_remembered

RUN_FILE = "run.json"
FORMAT = "graph-machine-run"
VERSION = 1


def read_run(folder: Path, error: type[GraphMachineError] = CheckpointError) -> dict[str, Any]:
    """The checked contents of run.json; conditions and tasks of one's own are there afterwards."""
    found = read_unchecked(folder, error)
    check_run(found, folder / RUN_FILE, error)
    load_remembered(found.get("imports"), folder / RUN_FILE)
    return found


def read_unchecked(folder: Path, error: type[GraphMachineError]) -> dict[str, Any]:
    """The contents of run.json as they are, to be packed or checked later."""
    try:
        return read_object(folder / RUN_FILE, error)
    except FileNotFoundError:
        raise error(f"No run here (there is no {RUN_FILE}): {folder}") from None


def check_run(record: Any, where: Path, error: type[GraphMachineError]) -> None:
    """Raise for what is no run of this format."""
    if not isinstance(record, dict) or (
        (record.get("format"), record.get("version")) != (FORMAT, VERSION)
    ):
        raise error(f"Not a run of format {FORMAT}, version {VERSION}: {where}")
    for key in ("config", "data"):
        if not isinstance(record.get(key), dict):
            wrong = f"{key} should be an object" if key in record else f"it lacks '{key}'"
            raise error(f"{RUN_FILE} does not describe a run: {wrong}: {where}")


def run_above(folder: Path) -> Path | None:
    """The run folder that a model folder or checkpoint lies in (or is), if any."""
    return next((p for p in (folder, *folder.parents[:2]) if (p / RUN_FILE).is_file()), None)
