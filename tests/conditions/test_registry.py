"""The registry walk: every condition builds, survives JSON, trains, and reaches every parameter."""

import pytest
import torch

from graph_machine.config import InputSpec
from graph_machine.errors import ConfigError
from graph_machine.lab.conditions.registry import BASE, CONDITIONS, condition
from graph_machine.lab.conditions.tables import MAIN, TABLES, tables_of
from graph_machine.lab.config import ExperimentConfig
from graph_machine.models import GraphMachine

TINY = BASE.with_model(
    num_layers=2, d_node=8, num_heads=2, d_attn_key=4, d_attn_value=4, d_ref_key=4, d_edge=4
).with_task(box="2x2")
SPEC = InputSpec(
    num_tokens=4, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid", num_edge_categories=6
)

PAPER = [name for name, item in CONDITIONS.items() if not item.beyond_paper]
PAPER_TABLES = [table for table in TABLES.values() if table.in_paper]


def test_the_paper_has_36_conditions_in_14_tables() -> None:
    in_tables = {row.condition for table in PAPER_TABLES for row in table.rows}
    assert len(PAPER) == 36
    assert len(PAPER_TABLES) == 14
    assert in_tables == set(PAPER)
    assert all(tables_of(name) for name in PAPER)
    assert len([n for n in PAPER if n in MAIN]) == 5
    seeds = {row.condition: row.seeds for t in PAPER_TABLES for row in t.rows}
    assert sum(seeds.values()) == 143  # 5 conditions with ten seeds, 31 with three
    for table in PAPER_TABLES:
        for row in table.rows:  # those in brackets repeat a main condition
            if row.label.startswith("(") or table.name == "1":
                assert (row.paper, row.seeds) == (MAIN[row.condition], 10)
            else:
                assert row.condition not in MAIN


def test_no_two_conditions_are_the_same() -> None:
    seen: dict[ExperimentConfig, str] = {}
    for name, item in CONDITIONS.items():
        assert item.config not in seen, f"{name} = {seen.get(item.config)}"
        seen[item.config] = name
        assert bool(item.changes) == (name != "gm")
        assert item.doc


@pytest.mark.parametrize("name", [n for n, c in CONDITIONS.items() if c.task == "sudoku"])
def test_condition_builds_trains_and_survives_json(name: str) -> None:
    config = CONDITIONS[name].change(TINY)
    assert ExperimentConfig.from_json(config.to_json()) == config
    assert CONDITIONS[name].config == ExperimentConfig.from_json(CONDITIONS[name].config.to_json())

    # Weights of 0.02 leave some gradients too small to move a 1.0 in float32; torch's do not.
    model = GraphMachine(config.model.replace(init="torch"), SPEC)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens, answers = torch.randint(4, (2, 9)), torch.randint(3, (2, 9))
    first = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(2):
        out = model(tokens, entropies=True)
        loss = torch.nn.functional.cross_entropy(out.logits.transpose(1, 2), answers)
        loss = loss + 1e-3 * sum(e for e in out.entropies if e is not None)
        assert loss.isfinite()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        # With s = 1 a new address keeps one entry, at the start the same for all slots of a node:
        # there is nothing to sharpen or to choose between, and gradients of edges vanish.
        if config.model.top_s != 1:
            assert not torch.equal(parameter, first[parameter_name]), parameter_name


def test_edge_sublayers_keep_their_ratio_in_shallower_budgets() -> None:
    change = CONDITIONS["gm-edge-sublayers-8"].change
    assert change(BASE).model.edge_sublayers == 8
    assert change(BASE.with_model(num_layers=8)).model.edge_sublayers == 2
    assert change(BASE.with_model(num_layers=2)).model.edge_sublayers == 1


def test_baselines_keep_their_own_rate_and_steps_in_proportion_to_the_budget() -> None:
    change = CONDITIONS["clrs-edge-transformer"].change
    for steps, rate in ((3000, 2e-3), (30, 1e-3)):
        train = change(BASE.with_train(steps=steps, peak_lr=rate)).train
        assert (train.steps, train.peak_lr) == (steps // 3, 15 * rate)


def test_an_unknown_condition_offers_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        CONDITIONS["gm-rop"]
    assert str(caught.value) == (
        "Unknown condition 'gm-rop'. Did you mean 'gm-rope'? "
        "List all with 'graph-machine conditions'."
    )
    with pytest.raises(ConfigError, match="--import"):
        CONDITIONS["xxxxxxx"]
    with pytest.raises(ConfigError, match=r"'C\.7'"):
        TABLES["C.7"]
    with pytest.raises(ConfigError, match="'gm'"):
        condition("gm", "again")(lambda base: base)
