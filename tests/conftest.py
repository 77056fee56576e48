"""What every test shares: one seed, no network, and a way around the shape checker."""

import os
import sys
from collections import Counter
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from hypothesis import settings

from support.browser import CHROMIUM, OPTIONS
from support.checker import jaxtyped

# Triton reads this when it is imported. Without a GPU its kernels are tested in the interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Before the package is imported: the import hook asks for it by this name.
setattr(jaxtyping, "jaxtyped", jaxtyped)  # noqa: B010

# Deadlines measure the machine, not the code; the examples are the same in every run.
settings.register_profile("repo", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("repo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: at the end, no worker waits for another's last long file."""
    counts = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -counts[item.path]))


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test starts from the same random state, in whatever order tests run."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def own_imports() -> Iterator[None]:
    """A file's --import ends with it: runs of the next file do not remember it."""
    yield
    plugins = sys.modules.get("graph_machine.lab.plugins")
    if plugins is not None:
        plugins._loaded.clear()
        plugins._named.clear()


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the shape checker of the test run: the user's view of wrong input."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """One chromium for all tests of a process: playwright allows no second one."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "REQUIRE_BROWSER is set, and chromium is not installed"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fresh memory is NaN, so that an unwritten entry shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
