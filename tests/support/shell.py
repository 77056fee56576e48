"""Commands and scripts in processes of their own, without four seconds of imports for each.

They are forked from a server process that has imported what they need and has run nothing: they
share no state with the tests and none with each other, only files. The shape checker of the test
run is not in them.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "graph_machine.lab.cli",
        "graph_machine.lab.training.loop",
        "graph_machine.lab.zoo",
        "matplotlib.pyplot",
        "torch._dynamo",  # the first optimiser of a process imports it
        "torch._dynamo.backends.debugging",
        "torch._functorch.aot_autograd",
        "torch.export",
    ]
)


def _begin(folder: Path, environment: dict[str, str], out: Path) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    with out.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _run(words: list[str], folder: Path, environment: dict[str, str], out: Path) -> None:
    _begin(folder, environment, out)
    from graph_machine.lab.cli import main

    sys.argv = ["graph-machine", *words]
    sys.exit(main())


def _execute(
    code: str, words: list[str], folder: Path, environment: dict[str, str], out: Path
) -> None:
    _begin(folder, environment, out)
    torch.set_num_threads(1)  # some fork again, which other threads would not survive
    sys.argv = ["script.py", *words]
    exec(compile(code, "script.py", "exec"), {"__name__": "__main__"})


def _end(process: BaseProcess, timeout: float) -> int | None:
    process.join(timeout)
    code = process.exitcode
    if code is None:
        process.kill()
    return code


def command(
    words: list[str], folder: Path, environment: dict[str, str], timeout: float = 300
) -> tuple[int | None, str]:
    """The exit code of a command and what it printed; None if it took too long."""
    out = folder / ".printed"
    process = CONTEXT.Process(target=_run, args=(words, folder, environment, out))
    process.start()
    return _end(process, timeout), out.read_text()


def scripts(
    code: str,
    words: Sequence[object] = (),
    environments: Sequence[dict[str, str]] = ({},),
    timeout: float = 900,
) -> list[tuple[int | None, str]]:
    """The same of a script, once per environment and side by side. `words` are its arguments."""
    with tempfile.TemporaryDirectory() as name:
        outs = [Path(name, f"printed-{number}") for number in range(len(environments))]
        processes = [
            CONTEXT.Process(
                target=_execute, args=(code, [str(word) for word in words], Path(name), more, out)
            )
            for more, out in zip(environments, outs, strict=True)
        ]
        for process in processes:
            process.start()
        codes = [_end(process, timeout) for process in processes]
        return [(code, out.read_text()) for code, out in zip(codes, outs, strict=True)]


def script(code: str, *words: object, timeout: float = 900) -> str:
    """What a script prints; it is an error if it does not end well."""
    [(status, text)] = scripts(code, words, timeout=timeout)
    assert status == 0, text[-3000:]
    return text
