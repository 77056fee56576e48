"""Model cards: the facts of a shipped model as a page, and as lines of a list."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graph_machine.errors import CheckpointError, did_you_mean
from graph_machine.files import write_text
from graph_machine.models import checkpoint
from graph_machine.models.checkpoint import shipped

FORMAT = "graph-machine-card"
VERSION = 1
CARD_FILE = "card.json"
README_FILE = "README.md"
RANGES = 6  # numbers of clues are folded into at most this many ranges in a list

Card = dict[str, Any]


def read_card(name: str) -> Card:
    """The facts of a shipped model."""
    if name not in shipped():
        known = f" There are: {', '.join(shipped())}." if shipped() else " None is shipped yet."
        raise CheckpointError(
            f"No model of this name ships with the package: '{name}'."
            f"{did_you_mean(name, shipped())}{known}"
        )
    return read_facts(checkpoint.ZOO / name)


def read_facts(folder: Path) -> Card:
    """The checked contents of card.json."""
    path = folder / CARD_FILE
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"This model has no card (there is no {CARD_FILE}): {folder}"
        ) from None
    except ValueError:
        raise CheckpointError(f"{CARD_FILE} is damaged (not valid JSON): {path}") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT or card.get("version") != VERSION:
        raise CheckpointError(f"Not a card of format {FORMAT}, version {VERSION}: {path}")
    return card


def render_card(folder: Path) -> Path:
    """Write README.md anew from card.json."""
    write_text(folder / README_FILE, card_markdown(read_facts(folder)))
    return folder / README_FILE


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def interval(part: dict[str, Any], name: str = "board") -> str:
    low_high = part.get(f"{name}_interval")
    return f"{percent(low_high[0])} to {percent(low_high[1])}" if low_high else ""


def minutes(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def accuracy_table(title: str, parts: dict[str, dict[str, Any]]) -> list[str]:
    """Rows of one grouping; nothing where there is none."""
    if not parts:
        return []
    lines = [f"| {title} | puzzles | boards | 95% interval | cells |"]
    lines.append("| ---: | ---: | ---: | --- | ---: |")
    lines += [
        f"| {label} | {part['puzzles']:,} | {percent(part['board_accuracy'])} | {interval(part)} "
        f"| {percent(part['cell_accuracy'])} |"
        for label, part in parts.items()
    ]
    return [*lines, ""]


def seen_text(seen: int | None) -> str:
    if seen is None:
        return ""
    if seen == 0:
        return " None of them was trained on, under any names of the digits."
    return f" **{seen:,} of them were trained on**, under these or other names of the digits."


def accuracy_section(found: dict[str, Any]) -> list[str]:
    """One set of puzzles: the whole, then by rating and by clues."""
    title = found["on"][0].upper() + found["on"][1:]
    file = f" (`{found['file']}`)" if found["file"] else ""
    lines = [
        f"### {title}{file}",
        "",
        f"{found['puzzles']:,} puzzles: **{percent(found['board_accuracy'])} of the boards** "
        f"solved without a mistake (95% interval {interval(found)}), "
        f"{percent(found['cell_accuracy'])} of the blank cells.{seen_text(found['seen'])}",
        "",
    ]
    mix = found["natural_mix"]
    if mix:
        lines += [
            f"Weighted as the ratings are in Sudoku-3M: {percent(mix['board_accuracy'])} of the "
            f"boards ({interval(mix)}).",
            "",
        ]
    lines += accuracy_table("rating", found["by_rating"])
    lines += accuracy_table("clues", found["by_clues"])
    if found["references"]:
        told = ", ".join(
            f"{name} {percent(part['board_accuracy'])}"
            for name, part in found["references"].items()
        )
        lines += [f"The same puzzles without learning: {told}.", ""]
    return lines


def front_matter(card: dict[str, Any]) -> list[str]:
    """What the Hub reads of a card."""
    lines = [
        "---",
        "license: apache-2.0",
        "library_name: graph-machine",
        "tags:",
        "- graph-machine",
        f"- {card['task']}",
        "model-index:",
        f"- name: {card['name']}",
        "  results:",
    ]
    for found in card["accuracy"]:
        lines += [
            "  - task:",
            "      type: other",
            f"      name: {card['task']} {card['board']}",
            "    dataset:",
            "      type: other",
            f'      name: "{found["on"]}"',
            "    metrics:",
            "    - type: accuracy",
            "      name: boards solved",
            f"      value: {found['board_accuracy']:.4f}",
        ]
    return [*lines, "---", ""]


def facts_table(card: dict[str, Any]) -> list[str]:
    training = card["training"]
    threads = f"{training['threads']} thread{'' if training['threads'] == 1 else 's'}"
    where = training["accelerator"] or f"{training['cpu']}, {threads}"
    compute = f", {training['flops'] / 1e12:,.3g} TFLOP" if training["flops"] else ""
    rows = {
        "task": f"{card['task']}, {card['board']} boards"
        + (f" with boxes of {card['box']}" if card["box"] else ""),
        "condition": f"`{card['condition']}`: {card['condition_doc']}",
        "size": f"{card['parameters']:,} parameters in {training['layers']} layers, "
        f"{card['bytes'] / 1e6:.1f} MB in half precision",
        "data": card["puzzles"],
        "budget": f"`{training['budget']}`: {training['steps']:,} steps of "
        f"{training['batch_size']} puzzles, seed {training['seed']}",
        "time": f"{minutes(training['seconds'])} ({where}){compute}",
        "code": f"commit `{training['commit']}`"
        if training["commit"]
        else f"graph-machine {training['versions'].get('graph-machine', '')}",
    }
    return ["| | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in rows.items()), ""]


def use_section(card: dict[str, Any]) -> list[str]:
    name, example = card["name"], card["example"]
    lines = ["## Use", "", "```"]
    if example:
        lines.append(f"graph-machine solve {name} {example['puzzle']}")
    source = card["data"]["source"]
    data = "" if source == "generated" else f" --data {source}"
    lines += [f"graph-machine explore {name}", f"graph-machine evaluate {name}{data}", "```", ""]
    lines += ["```python", "from graph_machine import GraphMachine", ""]
    lines.append(f'model = GraphMachine.from_pretrained("{name}")')
    if example:
        lines.append(f'found = model.predict(["{example["puzzle"]}"])')
        lines.append("print(found.texts, found.confidences)  # at given cells nothing is learned")
    return [*lines, "```", ""]


def body(card: dict[str, Any]) -> str:
    """The card without what only the Hub reads."""
    whole = card["full_precision"]
    lines = [f"# {card['name']}", "", *facts_table(card), *use_section(card)]
    lines += ["## Training", "", "```", card["training"]["command"], "```", ""]
    lines += ["## Accuracy", "", "Of these weights, in half precision as they are stored. "]
    lines[-1] += (
        f"The run itself measured {percent(whole['board_accuracy'])} of the boards and "
        f"{percent(whole['cell_accuracy'])} of the cells of its test split with full precision."
    )
    lines.append("")
    for found in card["accuracy"]:
        lines += accuracy_section(found)
    lines += ["## What this does not show", "", *(f"- {text}" for text in card["not_shown"]), ""]
    if card["notes"]:
        lines += ["## Notes", "", *(f"- {text}" for text in card["notes"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def card_markdown(card: dict[str, Any]) -> str:
    """README.md."""
    return "\n".join(front_matter(card)) + "\n" + body(card)


def folded(by_clues: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Board accuracy by ranges of clues: neighbours together, about as many puzzles in each."""
    rows = sorted((int(k), v["puzzles"], v["board_accuracy"]) for k, v in by_clues.items())
    share = sum(puzzles for _, puzzles, _ in rows) / min(RANGES, max(1, len(rows)))
    groups: list[list[tuple[int, int, float]]] = []
    seen = 0
    for row in rows:
        # One number of clues per range where there are few of them.
        if not groups or len(rows) <= RANGES or seen >= len(groups) * share:
            groups.append([])
        groups[-1].append(row)
        seen += row[1]
    return {
        f"{g[0][0]}" if len(g) == 1 else f"{g[0][0]}-{g[-1][0]}": sum(n * a for _, n, a in g)
        / sum(n for _, n, _ in g)
        for g in groups
    }


def listing(cards: Sequence[dict[str, Any]]) -> str:
    """One paragraph per model; lines are not wrapped, so that they can be searched with grep."""
    rows = [("name", "board", "condition", "parameters", "size", "boards solved")]
    for card in cards:
        first = card["accuracy"][0]
        rows.append(
            (
                card["name"],
                card["board"],
                card["condition"],
                f"{card['parameters']:,}",
                f"{card['bytes'] / 1e6:.1f} MB",
                f"{percent(first['board_accuracy'])} of {first['puzzles']:,} ({first['on']})",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            text.rjust(width) if column in (3, 4) else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
        if number:
            lines += [f"    {text}".rstrip() for text in _details(cards[number - 1])]
    return "\n".join(lines)


def _details(card: dict[str, Any]) -> list[str]:
    lines = []
    for number, found in enumerate(card["accuracy"]):
        if number:
            whole = f"{percent(found['board_accuracy'])} of {found['puzzles']:,}"
            lines.append(f"{found['on']}: {whole}")
        rating = {k: v["board_accuracy"] for k, v in found["by_rating"].items()}
        for title, shares in (("clues", folded(found["by_clues"])), ("rating", rating)):
            if shares:
                told = ", ".join(f"{label}: {percent(share)}" for label, share in shares.items())
                lines.append(f"by {title:<6}  {told}")
    return [*lines, f"trained by {card['training']['command']}", ""]
