"""From run records to tables, learning curves and pages.

`read_runs(folder)` gives the runs as a pandas DataFrame.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph_machine.lab.reports.runs import read_runs as read_runs


def __getattr__(name: str) -> Any:
    if name != "read_runs":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # Not before it is used: the commands that import this room need not wait for it.
    from graph_machine.lab.reports.runs import read_runs

    return read_runs
