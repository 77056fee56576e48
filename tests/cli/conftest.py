"""A command as a user types it, and what it prints."""

from collections.abc import Callable

import pytest

from graph_machine.lab.cli import run

OutOf = Callable[[list[str]], str]


@pytest.fixture
def out_of(capsys: pytest.CaptureFixture[str]) -> OutOf:
    """The output of a command that ends well."""

    def call(words: list[str]) -> str:
        assert run(words) == 0
        return capsys.readouterr().out

    return call
