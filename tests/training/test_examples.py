"""The Python examples of docs/training.md run as they stand, one after the other."""

import re
from pathlib import Path

import pytest

from graph_machine.config import TASK_CONFIGS
from graph_machine.experiments.conditions import CONDITIONS
from graph_machine.tasks.base import TASKS

PAGE = Path(__file__).parent.parent.parent / "docs" / "training.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("code", SNIPPETS, ids=["library", "condition", "task"])
def test_examples_run(code: str, puzzles: str) -> None:
    registries = (CONDITIONS, TASKS, TASK_CONFIGS)
    before = [set(registry) for registry in registries]
    try:
        exec(compile(code, PAGE.name, "exec"), {"__name__": "example"})
    finally:
        for registry, names in zip(registries, before, strict=True):
            for name in set(registry) - names:
                del registry._items[name]
