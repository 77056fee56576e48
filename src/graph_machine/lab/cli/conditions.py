"""`graph-machine conditions`: the paper's conditions, and how each differs from the base."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from graph_machine.errors import ConfigError, GraphMachineError, one_line
from graph_machine.lab.cli._options import Conditions
from graph_machine.lab.conditions.budgets import base_for, config_for
from graph_machine.lab.conditions.registry import CONDITIONS, Condition
from graph_machine.lab.conditions.tables import TABLES, tables_of
from graph_machine.lab.config import ExperimentConfig

OURS = "graph_machine.lab.conditions"
PAPER = "paper"


@cache
def known_counts() -> dict[str, int]:
    """Parameters of our own conditions at the paper's size, by name (kept true by a test).

    Counting takes torch and seconds for all of them; a list should appear at once.
    """
    return json.loads((files(OURS) / "parameters.json").read_text(encoding="utf-8"))


def parameters_of(condition: Condition, config: ExperimentConfig, budget: str = PAPER) -> int:
    ours = condition.change.__module__.startswith(OURS)
    if ours and budget == PAPER and condition.name in known_counts():
        return known_counts()[condition.name]
    from graph_machine.lab.tasks.base import task_of
    from graph_machine.models.counting import count_parameters

    return count_parameters(config.model, task_of(config.task).spec)


def condition_facts(condition: Condition, budget: str = PAPER) -> dict[str, Any]:
    """The facts of a condition, for programs."""
    if budget == PAPER:
        config, base = condition.config, condition.base
    else:
        config, base = config_for(condition.name, budget), base_for(budget, task=condition.task)
    rows = [(t, r) for t in TABLES.values() for r in t.rows if r.condition == condition.name]
    return {
        "name": condition.name,
        "doc": condition.doc,
        "tables": tables_of(condition.name),
        "seeds": max((row.seeds for _, row in rows), default=0),
        "paper_board_accuracy": rows[0][1].paper.mean if rows and rows[0][1].paper else None,
        "parameters": parameters_of(condition, config, budget),
        "changes": config.differences(base),
        "beyond_paper": condition.beyond_paper,
    }


def listed(condition: Condition) -> dict[str, Any]:
    """As `condition_facts`; a condition that cannot be built keeps its row, which says why."""
    try:
        return condition_facts(condition)
    except Exception as error:  # the user's code: the others are listed all the same
        ours = isinstance(error, GraphMachineError)
        why = str(error) if ours else f"{type(error).__name__}: {error}"
        return {
            "name": condition.name,
            "doc": condition.doc,
            "tables": [],
            "parameters": None,
            "changes": {},
            "beyond_paper": condition.beyond_paper,
            "error": one_line(why),
        }


def _list(everything: list[dict[str, Any]]) -> str:
    """One line per condition; not wrapped, so that it can be searched with grep."""
    rows = [("condition", "parameters", "tables", "what it is (what it changes of gm)")]
    for facts in everything:
        tables = ", ".join(facts["tables"]) or "beyond the paper"
        changed = ", ".join(f"{k.partition('.')[2]}={v}" for k, v in facts["changes"].items())
        text = f"{facts['doc']} ({changed})" if changed else facts["doc"]
        count = "?" if facts["parameters"] is None else f"{facts['parameters']:,}"
        text = f"{text}: cannot be built: {facts['error']}" if "error" in facts else text
        rows.append((facts["name"], count, tables, text))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {count:>{widths[1]}}  {tables:<{widths[2]}}  {doc}"
        for name, count, tables, doc in rows
    )


def _show(facts: dict[str, Any], config: ExperimentConfig, budget: str) -> str:
    """Facts, then the changed settings, then all others."""
    size = "" if budget == PAPER else f" at the budget {budget}"
    lines = [f"{facts['name']}: {facts['doc']}", f"parameters{size}: {facts['parameters']:,}"]
    if facts["paper_board_accuracy"] is None and facts["tables"]:
        lines.append(f"tables: {', '.join(facts['tables'])} (beyond the paper)")
    elif facts["tables"]:
        value = f"{facts['paper_board_accuracy']}% of boards, {facts['seeds']} seeds"
        lines.append(f"tables: {', '.join(facts['tables'])} (paper: {value})")
    settings = {key: f"{key} = {value}" for key, value in config.flat().items()}
    width = max(map(len, settings.values()))
    parts = {True: ["changed against the base:"], False: ["", "as in the base:"]}
    for key, text in settings.items():
        mark = "*" if key in facts["changes"] else " "
        parts[mark == "*"].append(f"{mark} {text:<{width}}  {config.doc(key)}")
    return "\n".join([*lines, *(parts[True] if facts["changes"] else []), *parts[False]])


def main(args: Conditions) -> int:
    if not args.words:
        if args.budget != PAPER:
            raise ConfigError("--budget goes with 'graph-machine conditions show NAME'.")
        everything = [listed(condition) for condition in CONDITIONS.values()]
        print(json.dumps(everything, indent=2) if args.json else _list(everything))
        return 0
    # `conditions NAME` is what a hurried person types; it means `conditions show NAME`.
    words = args.words[1:] if args.words[0] == "show" else args.words
    if len(words) != 1:
        raise ConfigError(
            f"Name one condition to show, such as 'conditions show gm'; got {len(words)} names."
        )
    facts = condition_facts(CONDITIONS[words[0]], args.budget)
    config = config_for(words[0], args.budget)
    facts["config"] = config.to_dict()
    print(json.dumps(facts, indent=2) if args.json else _show(facts, config, args.budget))
    return 0
