"""`graph-machine solve`: what is printed of answers, whatever they are made of."""

import numpy as np
import pytest

from cli.conftest import OutOf
from graph_machine.lab.cli.solve import print_answers
from graph_machine.lab.tasks.answers import ExactAnswer, TextAnswer


def test_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_answers([TextAnswer("a[/b] :smile:")], [{}])
    assert capsys.readouterr().out == "a[/b] :smile:\nnot checked.\n"


def test_marks_have_a_legend(out_of: OutOf) -> None:
    assert "' filled in by the model" in out_of(["solve", "gm-4x4", "..3...4..4...2.."])


def test_only_checked_answers_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    values = np.array([1, 2])
    loose, right, wrong = (ExactAnswer(values, e) for e in (None, values, values + 1))
    print_answers([loose, loose], [{}, {}])
    assert "valid solutions" not in capsys.readouterr().out
    print_answers([loose, right, wrong], [{}] * 3)
    assert "1 of 2 answers are valid solutions." in capsys.readouterr().out
