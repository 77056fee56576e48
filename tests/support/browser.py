"""Chromium for the tests of the page: how it is started, and how a page is read and clicked."""

import os
import shutil
from collections.abc import Callable

import pytest

CHROMIUM = shutil.which("chromium")
OPTIONS = [
    "--no-sandbox", "--headless=new", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
browser_marks = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None and not os.environ.get("REQUIRE_BROWSER"),
        reason="there is no chromium here; with one, it is tested (REQUIRE_BROWSER=1: a failure)",
    ),
]


def until(page, holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait from outside: the page's own policy forbids scripts that are given as text."""
    for _ in range(int(seconds * 50)):
        if holds():
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"waited {seconds} s in vain at {page.url}: {message(page)}")


def message(page) -> str:
    return page.locator("#message").inner_text()


def label(page, selector: str) -> str:
    return page.locator(selector).first.get_attribute("aria-label")


def click_cell(page, row: int, col: int, side: int, board: int = 0) -> None:
    canvas = page.locator("canvas.example").nth(board)
    box = canvas.bounding_box()
    step = box["width"] / side
    canvas.click(position={"x": (col + 0.5) * step, "y": (row + 0.5) * step})


def click_node(page, x: float, y: float) -> None:
    canvas = page.locator("canvas.example")
    side = canvas.bounding_box()["width"]
    canvas.click(position={"x": side * (0.08 + 0.84 * x), "y": side * (0.08 + 0.84 * y)})
