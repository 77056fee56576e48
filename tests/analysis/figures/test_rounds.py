"""A puzzle filling in: when a cell is decided, what is undone, the picture and its moving form."""

from pathlib import Path

import pytest

from graph_machine.errors import DataError
from graph_machine.lab.analysis.figures import applicable, draw_figure
from graph_machine.lab.analysis.figures.per_puzzle import boards_by_round, filling_gif
from graph_machine.lab.records.recorder import record
from support.recordings import boards, random_record, small_model


def test_a_recurrent_model_is_recorded_round_by_round(tmp_path: Path) -> None:
    tokens, solutions = boards()
    model = small_model(core_layers=1, rounds=3)
    made = record(model, tokens, solutions=solutions, box=(2, 2), names=("weights",))
    answers = made.inputs("round_answers")
    assert answers is not None
    assert answers.shape == (len(tokens), 3, 16)
    assert made.answers is not None
    assert (answers[:, -1] == made.answers).all()
    assert "rounds.2.layers.0.node.0.weights" in made
    figure = draw_figure(*applicable("rounds", [made])[0])
    titles = [axes.get_title() for axes in figure.get_axes()]
    assert titles == ["round 1", "round 2", "round 3", "decided in round"]
    assert filling_gif(made, tmp_path / "filling.gif").read_bytes()[:6] == b"GIF89a"


def test_a_model_without_a_core_has_no_rounds() -> None:
    assert applicable("rounds", [random_record()]) == []
    with pytest.raises(DataError, match="round"):
        boards_by_round(random_record(), 0)
