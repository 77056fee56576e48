"""Rounds at test time: any number, until stable, and several numbers in one pass."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.models import GraphMachine
from graph_machine.models.rounds import Rounds, after_rounds, answer
from models.test_recurrent import TOKENS, build


def test_a_number_of_rounds_is_that_of_the_call() -> None:
    model = build().eval()
    outputs, used = answer(model, Rounds(5), {"tokens": TOKENS})
    assert torch.equal(outputs, model(TOKENS, rounds=5).logits)
    assert used.tolist() == [5, 5]
    assert answer(model, Rounds(), {"tokens": TOKENS})[1].tolist() == [model.config.rounds] * 2


def test_several_numbers_come_from_one_pass() -> None:
    model = build().eval()
    found = list(after_rounds(model, [1, 3], {"tokens": TOKENS}))
    for rounds, outputs in zip((1, 3), found, strict=True):
        torch.testing.assert_close(outputs, model(TOKENS, rounds=rounds).logits)


def test_an_example_stops_when_its_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    # Answers by round: the first example changes until round 3, the second until round 5.
    answers = [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 2), (2, 2), (1, 1)]

    def rounds(self: GraphMachine, **inputs: Tensor) -> Iterator[Tensor]:
        for pair in answers:
            yield torch.nn.functional.one_hot(torch.tensor(pair), 3).float().unsqueeze(1)

    monkeypatch.setattr(GraphMachine, "iterate", rounds)
    outputs, used = answer(build(), Rounds(8, until_stable=2), {"tokens": TOKENS})
    assert used.tolist() == [5, 7]
    assert outputs.argmax(dim=-1).flatten().tolist() == [2, 2]
    # Without enough rounds to settle, the last answer is taken.
    outputs, used = answer(build(), Rounds(4, until_stable=2), {"tokens": TOKENS})
    assert used.tolist() == [4, 4]
    assert outputs.argmax(dim=-1).flatten().tolist() == [2, 1]


def test_predict_reports_the_rounds() -> None:
    model = build().eval()
    found = model.predict(TOKENS, rounds=30, until_stable=2)
    assert found.rounds is not None
    assert (found.rounds >= 3).all()
    assert model.predict(TOKENS, rounds=3).rounds is not None


def test_mistakes_are_one_line() -> None:
    with pytest.raises(ConfigError, match="until_stable should be at least 1, got 0"):
        build().predict(TOKENS, until_stable=0)
    plain = build("gm", qk_norm=True)
    with pytest.raises(ConfigError, match="until_stable: this model has no recurrent core"):
        plain.predict(TOKENS, until_stable=2)
    with pytest.raises(ConfigError, match="this model has no recurrent core to repeat"):
        plain.train().predict(TOKENS, rounds=2)
    assert plain.training, "a refusal leaves the model as it was"
    with pytest.raises(ConfigError, match="rounds should be at least 1, got 0"):
        list(after_rounds(build(), [0, 2], {"tokens": TOKENS}))
