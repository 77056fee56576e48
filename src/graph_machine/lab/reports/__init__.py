"""From run records to tables, learning curves and pages.

`read_runs(folder)` gives the runs as a pandas DataFrame.
"""

from graph_machine.lab.reports.runs import read_runs

__all__ = ["read_runs"]
