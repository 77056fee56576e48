"""The command itself: usage, version, unknown words, and errors as one line without a traceback."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import graph_machine
from cli.conftest import OutOf
from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.lab import cli


def run_main(monkeypatch: pytest.MonkeyPatch, *argv: str) -> object:
    monkeypatch.setattr(sys, "argv", ["graph-machine", *argv])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def test_threads_that_wait_do_not_spin_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch reads the variable when it is loaded, which a command does after this."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    run_main(monkeypatch, "--version")
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    run_main(monkeypatch, "--version")
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["GOMP_SPINCOUNT"] == "0"


def test_usage_lists_what_exists(out_of: OutOf) -> None:
    """Every file of the package is a command, and listed."""
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert {name for name in files if not name.startswith("_")} == set(cli.COMMANDS)
    for words in ([], ["--help"], ["-h"]):
        out = out_of(words)
        assert out.startswith("usage: graph-machine COMMAND")
        assert all(f"  {name} " in out for name in cli.COMMANDS)
    assert out_of(["--version"]) == f"graph-machine {graph_machine.__version__}\n"


def test_unknown_commands_offer_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="condition"):
        cli.run(["condition"])
    assert run_main(monkeypatch, "condition") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "graph-machine: Unknown command 'condition'. Did you mean 'conditions'? "
        "List all with 'graph-machine --help'.\n"
    )


def raiser(error: BaseException) -> Callable[[list[str]], int]:
    def run(argv: list[str]) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataError("the file is empty: a.csv"), 2, "graph-machine: the file is empty: a.csv\n"),
        (KeyboardInterrupt(), 130, "graph-machine: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left", "run/model"), 2, "No space left: run/model\n"),
        (FileExistsError(errno.EEXIST, "File exists", "a.csv"), 2, "a.csv\n"),
    ],
    ids=["ours", "interrupt", "disk", "a file for a folder"],
)
def test_errors_are_one_line(
    error: BaseException, code: int, text: str, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(cli, "run", raiser(error))
    assert run_main(monkeypatch) == code
    told = capsys.readouterr().err
    assert told.startswith("graph-machine: ")
    assert told.endswith(text)
    assert told.count("\n") == 1


def test_all_missing_extras_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not cli.is_missing("data")
    assert not cli.is_missing("unheard-of")

    def main(argv: list[str]) -> int:
        raise MissingExtraError("numba", "data", "Making puzzles")

    monkeypatch.setattr("graph_machine.lab.cli.demo.main", main)
    with pytest.raises(MissingExtraError, match="data"):
        cli.run(["demo"])
    monkeypatch.setattr(cli, "is_missing", lambda extra: True)
    with pytest.raises(ConfigError, match=r"graph-machine\[data,analysis\]"):
        cli.run(["demo"])


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run", raiser(AssertionError("an invariant")))
    monkeypatch.setattr(sys, "argv", ["graph-machine"])
    with pytest.raises(AssertionError, match="an invariant"):
        cli.main()
