"""The walks of ARCHITECTURE.md: every function by which a real call enters a room, traced.

Calls inside a room, inside layers (`nn`, `ops`, `spaces`), of configs and of tools are not listed,
nor are properties.
"""

import re
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import graph_machine
from graph_machine import GraphEncoder
from graph_machine.lab.cli import run
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training.trainer import Trainer
from support.runs import puzzle_store, tiny

ROOT = Path(graph_machine.__file__).parent
PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
LAYERS = {"nn", "ops", "spaces"}
ASIDE = {"config", "lab.config", "errors", "files", "machine", "registry", "state"}
ASIDE |= {"lab.plugins", "lab.run_files"}


def room_of(place: str) -> str:
    parts = place.removesuffix(".py").split("/")
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def is_property(frame: FrameType) -> bool:
    owner = frame.f_locals.get("self")
    return isinstance(getattr(type(owner), frame.f_code.co_name, None), property | cached_property)


def walk(call: Callable[[], object]) -> list[str]:
    """Functions by which `call` enters a room, in order."""
    found: dict[str, None] = {}
    rooms: list[str] = []  # of the frames of this package, the innermost last

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(f"{ROOT}/"):
            return
        if event == "return":
            if rooms:
                rooms.pop()
            return
        place = file.removeprefix(f"{ROOT}/")
        room, name = room_of(place), frame.f_code.co_qualname
        enters = not rooms or (rooms[-1] != room and not LAYERS & {*rooms})
        hidden = "<" in name or name.endswith("__") or is_property(frame)
        if enters and not hidden and room not in LAYERS | ASIDE:
            found.setdefault(f"{place}::{name}")
        rooms.append(room)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def solve() -> Callable[[], object]:
    return lambda: run(["solve", "gm-4x4", "..3...4..4...2.."])


def step() -> Callable[[], object]:
    task = SudokuTask(tiny().task).use(puzzle_store(40))
    trainer = Trainer(tiny(), task, seed=0, device=torch.device("cpu"))
    return lambda: trainer.step(0)


def encode() -> Callable[[], object]:
    encoder = GraphEncoder(d_in=4, d_node=8, num_layers=1)
    x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
    return lambda: encoder(x, edge_index)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("title", "prepare", "most"),
    [("A puzzle", solve, 25), ("A batch", step, 20), ("A graph", encode, 12)],
)
def test_walk(title: str, prepare: Callable[[], Callable[[], object]], most: int) -> None:
    call = prepare()
    call()  # what is imported or compiled at the first call is not part of the walk
    page = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^{title}, .*?\n\n(.*?)\n\n", page, re.M | re.S)
    assert section is not None
    listed = set(re.findall(r"`([\w/.]+\.py::[\w.]+)`", section[1]))
    walked = walk(call)
    assert len(walked) <= most
    assert listed == {*walked}, "\n".join(walked)
