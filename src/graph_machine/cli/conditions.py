"""`graph-machine conditions`: the paper's conditions, and how each differs from the base."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from graph_machine.cli._options import options, read
from graph_machine.errors import ConfigError, GraphMachineError, one_line

if TYPE_CHECKING:
    from graph_machine.conditions.registry import Condition


@options
class Args:
    """List the conditions, or show one of them: `graph-machine conditions show gm`."""

    words: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[show NAME]")
    ] = ()
    json: bool = False  # print JSON, for programs


def describe(condition: "Condition") -> dict[str, Any]:
    """What a program may want to know of a condition, at the paper's size."""
    from graph_machine.conditions.tables import TABLES, tables_of
    from graph_machine.models.counting import count_parameters
    from graph_machine.tasks.base import task_of

    config = condition.config
    rows = [(t, r) for t in TABLES.values() for r in t.rows if r.condition == condition.name]
    return {
        "name": condition.name,
        "doc": condition.doc,
        "tables": tables_of(condition.name),
        "seeds": max((row.seeds for _, row in rows), default=0),
        "paper_board_accuracy": rows[0][1].paper.mean if rows and rows[0][1].paper else None,
        "parameters": count_parameters(config.model, task_of(config.task).spec),
        "changes": condition.changes,
        "beyond_paper": condition.beyond_paper,
    }


def listed(condition: "Condition") -> dict[str, Any]:
    """As `describe`; a condition that cannot be built keeps its row, which says why."""
    try:
        return describe(condition)
    except Exception as error:  # code of the user's: the others are listed all the same
        told = isinstance(error, GraphMachineError)
        why = str(error) if told else f"{type(error).__name__}: {error}"
        return {
            "name": condition.name,
            "doc": condition.doc,
            "tables": [],
            "parameters": None,
            "changes": {},
            "beyond_paper": condition.beyond_paper,
            "error": one_line(why),
        }


def _list() -> str:
    """One line per condition; not wrapped, so that it can be searched with grep."""
    from graph_machine.conditions.registry import CONDITIONS

    rows = [("condition", "parameters", "tables", "what it is (what it changes of gm)")]
    for condition in CONDITIONS.values():
        facts = listed(condition)
        tables = ", ".join(facts["tables"]) or "beyond the paper"
        changed = ", ".join(f"{k.partition('.')[2]}={v}" for k, v in facts["changes"].items())
        text = f"{condition.doc} ({changed})" if changed else condition.doc
        count = "?" if facts["parameters"] is None else f"{facts['parameters']:,}"
        text = f"{text}: cannot be built: {facts['error']}" if "error" in facts else text
        rows.append((condition.name, count, tables, text))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {count:>{widths[1]}}  {tables:<{widths[2]}}  {doc}"
        for name, count, tables, doc in rows
    )


def _show(facts: dict[str, Any]) -> str:
    from graph_machine.conditions.registry import CONDITIONS

    lines = [f"{facts['name']}: {facts['doc']}", f"parameters: {facts['parameters']:,}"]
    if facts["paper_board_accuracy"] is None and facts["tables"]:
        lines.append(f"tables: {', '.join(facts['tables'])} (beyond the paper)")
    elif facts["tables"]:
        value = f"{facts['paper_board_accuracy']}% of boards, {facts['seeds']} seeds"
        lines.append(f"tables: {', '.join(facts['tables'])} (paper: {value})")
    lines.append("config (* changed against gm):")
    config = CONDITIONS[facts["name"]].config
    settings = {f"{key} = {value}": key for key, value in config.flat().items()}
    width = max(map(len, settings))
    for text, key in settings.items():
        mark = "*" if key in facts["changes"] else " "
        lines.append(f"{mark} {text:<{width}}  {config.doc(key)}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    args = read(Args, argv, "conditions")
    from graph_machine.conditions.registry import CONDITIONS

    if not args.words:
        if args.json:
            print(json.dumps([listed(c) for c in CONDITIONS.values()], indent=2))
        else:
            print(_list())
        return 0
    # `conditions NAME` is what a hurried person types; it means `conditions show NAME`.
    words = args.words[1:] if args.words[0] == "show" else args.words
    if len(words) != 1:
        raise ConfigError(f"Name one condition to show, got {' '.join(args.words)!r}.")
    name = words[0]
    facts = describe(CONDITIONS[name])
    facts["config"] = CONDITIONS[name].config.to_dict()
    print(json.dumps(facts, indent=2) if args.json else _show(facts))
    return 0
