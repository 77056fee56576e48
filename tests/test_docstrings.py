"""Every name that a room exports has a docstring of its own, and the examples in them are true."""

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from support.registries import registries

__all__ = ["registries"]  # a fixture

PACKAGE = Path(__file__).parent.parent / "src" / "graph_machine"
ROOMS = sorted(file.parent.name for file in PACKAGE.glob("*/__init__.py"))
STATE = ["GraphState", "Visibility"]


def exported() -> list[tuple[str, Any]]:
    """(module.name, thing) for every class and function of the rooms' front doors."""
    found = []
    for module in (importlib.import_module(f"graph_machine.{name}") for name in ["state", *ROOMS]):
        names = STATE if module.__name__.endswith(".state") else getattr(module, "__all__", [])
        things = ((name, getattr(module, name)) for name in names)
        found += [
            (f"{module.__name__.removeprefix('graph_machine.')}.{name}", thing)
            for name, thing in things
            if inspect.isclass(thing) or inspect.isfunction(thing)
        ]
    return found


EXPORTED = exported()


def own_docstring(thing: Any) -> str:
    """What was written, and not what dataclasses and named tuples make up."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return "" if not text or text.startswith(f"{thing.__name__}(") else text


@pytest.mark.parametrize(("name", "thing"), EXPORTED, ids=[name for name, _ in EXPORTED])
def test_has_a_docstring(name: str, thing: Any) -> None:
    assert own_docstring(thing)
    for method, value in vars(thing).items() if inspect.isclass(thing) else ():
        described = inspect.isfunction(value) or isinstance(value, (property, classmethod))
        if described and not method.startswith("_"):
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(("name", "thing"), EXPORTED, ids=[name for name, _ in EXPORTED])
def test_examples_are_true(name: str, thing: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = dict(vars(inspect.getmodule(thing)) or {})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(recurse=False).find(thing, name, globs=names):
        assert runner.run(test).failed == 0
