"""A fixture for examples that register something."""

import gc
from collections.abc import Iterator

import pytest

from graph_machine.registry import Registry


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    found = [thing for thing in gc.get_objects() if type(thing) is Registry]
    before = [dict(registry._items) for registry in found]
    yield
    for registry, items in zip(found, before, strict=True):
        registry._items.clear()
        registry._items.update(items)
