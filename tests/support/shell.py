"""Commands of graph-machine in processes of their own, without two seconds of imports for each.

They are forked from a server process that has imported what commands need and has run nothing: they
share no state with the tests and none with each other, only files.
"""

import multiprocessing
import os
import sys
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["graph_machine.cli", "graph_machine.training.loop", "graph_machine.zoo", "matplotlib.pyplot"]
)


def _run(words: list[str], folder: Path, environment: dict[str, str], out: Path) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    with out.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from graph_machine.cli import main

    sys.argv = ["graph-machine", *words]
    sys.exit(main())


def command(
    words: list[str], folder: Path, environment: dict[str, str], timeout: float = 300
) -> tuple[int | None, str]:
    """The exit code of a command and what it printed; None if it took too long."""
    out = folder / ".printed"
    process = CONTEXT.Process(target=_run, args=(words, folder, environment, out))
    process.start()
    process.join(timeout)
    code = process.exitcode
    if code is None:
        process.kill()
    return code, out.read_text()
