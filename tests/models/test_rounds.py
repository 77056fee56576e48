"""Rounds at test time: any number, until stable, and several numbers in one pass."""

from collections.abc import Generator
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.models import GraphMachine
from graph_machine.models.predict import Rounds, after_rounds, answer, asked_places
from graph_machine.nn import RecurrentCore
from models.test_recurrent import SPEC, TOKENS, build, on_given_graphs
from support.cases import spread
from tolerances import assert_close


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


def plays(monkeypatch: pytest.MonkeyPatch, by_round: Tensor) -> None:
    """Models that answer as told: (rounds, b, q), one of three classes at every place."""

    def rounds(self: GraphMachine, **inputs: Tensor) -> Generator[Tensor, Tensor | None, None]:
        left = torch.arange(by_round.shape[1])
        for answers in by_round:
            rows = yield torch.nn.functional.one_hot(answers[left], 3).float()
            left = left if rows is None else left[rows]

    monkeypatch.setattr(GraphMachine, "iterate", rounds)


def test_an_example_stops_when_its_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    # Answers by round: the first example changes until round 3, the second until round 5.
    answers = [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 2), (2, 2), (1, 1)]
    plays(monkeypatch, torch.tensor(answers).unsqueeze(-1))
    outputs, used = answer(build(), Rounds(8, until_stable=2), {"tokens": TOKENS})
    assert used.tolist() == [5, 7]
    assert outputs.argmax(dim=-1).flatten().tolist() == [2, 2]
    # Without enough rounds to settle, the last answer is taken.
    outputs, used = answer(build(), Rounds(4, until_stable=2), {"tokens": TOKENS})
    assert used.tolist() == [4, 4]
    assert outputs.argmax(dim=-1).flatten().tolist() == [2, 1]


def test_only_what_is_asked_decides_when_an_example_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 is given and node 2 is padding: both change in every round."""
    by_round = torch.tensor([[[r % 3, 0 if r < 2 else 1, r % 2]] for r in range(9)])
    plays(monkeypatch, by_round)
    spec = SPEC.replace(num_nodes=None, grid=None, graph="given", alphabet=".1234", answers="1234")
    model = GraphMachine(build().config, spec)
    inputs = {"tokens": torch.tensor([[3, 0, 0]]), "node_mask": torch.tensor([[True, True, False]])}
    assert answer(model, Rounds(9, until_stable=2), inputs)[1].tolist() == [5]
    for name in inputs:  # one alone is not enough
        partial = inputs | {name: torch.zeros(1, 3, dtype=torch.long)}
        if name == "node_mask":
            partial[name] = torch.ones(1, 3, dtype=torch.bool)
        assert answer(model, Rounds(9, until_stable=2), partial)[1].tolist() == [9]


@pytest.mark.parametrize(
    ("output", "places", "expected"),
    [
        ("node", 3, [True, True, False]),
        ("edge", 6, [True, True, True, True, False, False]),
        ("graph", 1, None),
    ],
)
def test_padding_is_no_part_of_any_answer(output: str, places: int, expected: Any) -> None:
    spec = SPEC.replace(output=output)
    found = asked_places(spec, {"node_mask": torch.tensor([[True, True, False]])}, places)
    assert (None if found is None else found[0].tolist()) == expected


def test_padding_does_not_change_when_an_example_stops() -> None:
    model, alone, padded = on_given_graphs()
    torch.manual_seed(4)
    spread(model, 0.5)  # weights with which padding settles after the answer
    how = Rounds(24, until_stable=2)
    expected, used = answer(model, how, alone)
    found, padded_used = answer(model, how, padded)
    assert used.tolist() == padded_used.tolist()
    assert_close(found[:, :16], expected)


def with_the_whole_batch(
    model: GraphMachine, most: int, patience: int, tokens: Tensor
) -> tuple[Tensor, list[int]]:
    """The definition: every round of every example, and then a look at when it settled."""
    with torch.no_grad():
        each = torch.stack(model(tokens, rounds=most, keep_rounds=most).round_logits)
    answers = each.argmax(dim=-1)  # r b q
    used = []
    for row in range(len(tokens)):
        same = (answers[1:, row] == answers[:-1, row]).all(dim=-1).tolist()
        ends = (r + 1 for r in range(patience, most) if all(same[r - patience : r]))
        used.append(next(ends, most))
    outputs = torch.stack([each[r - 1, row] for row, r in enumerate(used)])
    return outputs, used


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"address_space": "logit"},
        {"address_space": "sparse", "sparse_s": 4},
        {"address_space": "compressed"},
        {"address_space": "hard", "sharpener": "off", "referral": "joint"},
        {"core_edge_sublayers": 1},
        {"core_input": "none", "core_state": "gated"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "weight",
)
def test_examples_that_have_settled_are_dropped(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(**settings).eval()
    spread(model, 0.5)
    torch.manual_seed(3)
    tokens = torch.randint(5, (8, 16))
    expected, settled = with_the_whole_batch(model, 24, 1, tokens)
    assert len(set(settled)) > 1, "the case should have examples that settle at different times"
    sizes, real = [], RecurrentCore.one_round

    def counted(self: RecurrentCore, state: Any, *others: Any) -> Any:
        sizes.append(len(state.node_features))
        return real(self, state, *others)

    monkeypatch.setattr(RecurrentCore, "one_round", counted)
    outputs, used = answer(model, Rounds(24, until_stable=1), {"tokens": tokens})
    assert used.tolist() == settled
    assert_close(outputs, expected)
    assert sum(sizes) == sum(settled), "an example costs the rounds that it takes"


def test_a_choice_among_input_edges_can_settle() -> None:
    """Its targets belong to examples, too."""
    model = GraphMachine(build().config, SPEC.replace(output="slot")).eval()
    each = model.iterate(TOKENS)
    next(each)
    rows = torch.tensor([1])
    assert_close(each.send(rows), model(TOKENS, rounds=2).logits[rows])


def test_predict_reports_the_rounds() -> None:
    model = build().eval()
    found = model.predict(TOKENS, rounds=30, until_stable=2)
    assert found.rounds is not None
    assert (found.rounds >= 3).all()
    assert model.predict(TOKENS, rounds=3).rounds is not None


def test_mistakes_are_one_line() -> None:
    with pytest.raises(ConfigError, match="until_stable"):
        build().predict(TOKENS, until_stable=0)
    plain = build("gm", qk_norm=True)
    with pytest.raises(ConfigError, match="until_stable"):
        plain.predict(TOKENS, until_stable=2)
    numbers = GraphMachine(build().config, SPEC.replace(output_kind="numbers"))
    with pytest.raises(ConfigError, match="classes"):
        numbers.predict(TOKENS, until_stable=2)
    with pytest.raises(ConfigError, match="core"):
        plain.train().predict(TOKENS, rounds=2)
    assert plain.training, "a refusal leaves the model as it was"
    with pytest.raises(ConfigError, match="rounds"):
        list(after_rounds(build(), [0, 2], {"tokens": TOKENS}))
