"""A fixture for examples that register something."""

import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache

import pytest

import graph_machine.lab.conditions
import graph_machine.lab.tasks
from graph_machine.registry import Registry


@cache
def _import_all() -> None:
    for package in (graph_machine.lab.conditions, graph_machine.lab.tasks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


@cache
def _found(modules: int) -> list[Registry]:
    """The registries of so many modules: to look at every object takes a fifth of a second."""
    return [thing for thing in gc.get_objects() if type(thing) is Registry]


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test registers is gone after it.

    What modules register when they are imported has to stay, so all of them are imported first.
    """
    _import_all()
    found = _found(len(sys.modules))
    before = [dict(registry._items) for registry in found]
    yield
    for registry, items in zip(found, before, strict=True):
        registry._items.clear()
        registry._items.update(items)
