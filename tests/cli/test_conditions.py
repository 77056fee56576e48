"""`graph-machine conditions`."""

import json

import pytest
import torch

from cli.conftest import OutOf
from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.conditions.registry import CONDITIONS, condition
from graph_machine.lab.config import ExperimentConfig, SudokuConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.models import GraphMachine
from graph_machine.models.counting import count_parameters


def test_the_list_names_every_condition(out_of: OutOf) -> None:
    found = {c["name"]: c for c in json.loads(out_of(["conditions", "--json"]))}
    assert list(found) == list(CONDITIONS)
    assert (found["gm"]["parameters"], found["gm"]["changes"]) == (2_695_280, {})
    assert found["gm-degree-5"]["tables"] == ["3"]
    lines = out_of(["conditions"]).splitlines()
    assert len(lines) == len(CONDITIONS) + 1


def test_show_one(out_of: OutOf) -> None:
    text = out_of(["conditions", "show", "gm-degree-5"])
    changed, _, others = text.partition("as in the base:")
    assert "* model.num_edges = 5" in changed
    assert "  model.d_node = 64" in others  # the whole config, with what each setting means
    assert "model.d_node" not in changed
    assert "d_n: width of node features" in text
    facts = json.loads(out_of(["conditions", "show", "gm-degree-5", "--json"]))
    assert facts["changes"] == {"model.num_edges": 5}
    assert facts["config"]["model"]["num_edges"] == 5
    with pytest.raises(ConfigError, match="gm-rope"):
        run(["conditions", "show", "gm-rop"])
    facts = json.loads(out_of(["conditions", "show", "gm-degree-5", "--budget", "cpu", "--json"]))
    assert facts["config"]["model"]["num_layers"] == 6
    assert facts["changes"] == {"model.num_edges": 5}
    assert facts["parameters"] == 470_144
    with pytest.raises(ConfigError, match="--budget"):
        run(["conditions", "--budget", "cpu"])


def test_the_stored_counts_are_those_of_the_models() -> None:
    """If this fails after a change of conditions, update conditions/parameters.json."""
    from graph_machine.lab.cli.conditions import known_counts

    specs = {name: task_of(one.config.task).spec for name, one in CONDITIONS.items()}
    counted = {n: count_parameters(c.config.model, specs[n]) for n, c in CONDITIONS.items()}
    assert known_counts() == counted
    table_1 = ("transformer", "transformer-static", "transformer-sin-pe", "transformer-sin-pe-2x")
    numbers = [counted[name] for name in (*table_1, "gm")]
    assert numbers == [2_124_096, 2_157_680, 2_124_096, 16_872_064, 2_695_280]


@pytest.mark.parametrize("sublayers", [None, 0, 3, 4, 16])
def test_the_short_count_is_exact(sublayers: int | None) -> None:
    config = CONDITIONS["gm-sharpener-learned"].config.model
    config = config.replace(num_layers=8, num_edge_sublayers=sublayers)
    with torch.device("meta"):
        whole = GraphMachine(config, task_of(SudokuConfig()).spec).num_parameters
    assert count_parameters(config, task_of(SudokuConfig()).spec) == whole


def test_a_name_alone_shows_it_and_other_words_are_refused(out_of: OutOf) -> None:
    assert out_of(["conditions", "gm"]) == out_of(["conditions", "show", "gm"])
    for words in (["show"], ["gm", "gm-rope"], ["shwo", "gm"]):
        with pytest.raises(ConfigError, match="one condition"):
            run(["conditions", *words])


def test_a_condition_that_cannot_be_built_keeps_its_row(
    out_of: OutOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"gm": CONDITIONS["gm"]}
    monkeypatch.setattr(CONDITIONS, "_items", kept)
    condition("own-wrong", "too narrow")(lambda base: base.with_model(d_node=-1))
    condition("own-broken", "divides")(lambda base: base.with_model(d_node=1 // 0))
    condition("own-elsewhere", "no such task", task="unheard-of")(lambda base: base)
    lines = out_of(["conditions"]).splitlines()
    assert "2,695,280" in lines[1]
    assert "?" in lines[2]
    assert "too narrow: cannot be built: " in lines[2]
    assert "d_node should be at least 1" in lines[2]
    assert "cannot be built: ZeroDivisionError" in lines[3]
    assert "cannot be built: Unknown task 'unheard-of'" in lines[4]
    facts = json.loads(out_of(["conditions", "--json"]))
    assert [fact["parameters"] for fact in facts] == [2_695_280, None, None, None]
    with pytest.raises(ConfigError, match="d_node"):
        run(["conditions", "own-wrong"])


def test_a_condition_that_forgets_to_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CONDITIONS, "_items", {})

    def forgets(base: ExperimentConfig) -> ExperimentConfig:
        base.with_model(d_node=32)
        return None  # type: ignore[return-value]

    condition("own-forgets", "nothing")(forgets)
    with pytest.raises(ConfigError, match="own-forgets"):
        config_for("own-forgets", "smoke")
    with pytest.raises(ConfigError, match="own-forgets"):
        _ = CONDITIONS["own-forgets"].config
