"""The Python examples of docs/training.md run as they stand, one after the other."""

import re
from pathlib import Path

import pytest

from graph_machine.conditions.registry import CONDITIONS
from graph_machine.config import TASK_CONFIGS
from graph_machine.tasks.base import TASKS
from graph_machine.training import Result

PAGE = Path(__file__).parent.parent.parent / "docs" / "training.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("code", SNIPPETS, ids=["library", "condition", "task"])
def test_examples_run(code: str, puzzles: str) -> None:
    registries = (CONDITIONS, TASKS, TASK_CONFIGS)
    before = [set(registry) for registry in registries]
    try:
        names: dict[str, object] = {"__name__": "example"}
        exec(compile(code, PAGE.name, "exec"), names)
        result = names.get("result")
        if result is not None:  # an example that trains leaves a finished run
            assert isinstance(result, Result)
            assert 0 <= result.score <= 1
            assert (result.folder / "result.json").exists()
    finally:
        for registry, known in zip(registries, before, strict=True):
            for name in set(registry) - known:
                del registry._items[name]
