"""The walks of ARCHITECTURE.md: all functions that a real call passes outside of layers, traced.

Not listed: what layers do (`nn`, `ops`, `spaces`) and what a model's constructor calls; configs and
tools (`ASIDE`, `OPTIONS`, `PURE`); properties, dunder methods and functions inside functions.
"""

import re
import sys
from collections.abc import Callable
from functools import cached_property
from itertools import count
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
# Options are the configs of commands; the functions (not the classes) of boards are pure tools.
OPTIONS = "lab/cli/_options.py"
PURE = {"lab/tasks/digits.py", "lab/tasks/sudoku/board.py"}


def room_of(place: str) -> str:
    parts = place.removesuffix(".py").split("/")
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def is_property(frame: FrameType) -> bool:
    owner = frame.f_locals.get("self")
    return isinstance(getattr(type(owner), frame.f_code.co_name, None), property | cached_property)


def walk(call: Callable[[], object]) -> list[str]:
    """Functions that `call` passes outside of layers and their making, in order."""
    found: dict[str, None] = {}
    inside: list[bool] = []  # of the frames of this package: whether they belong to a layer

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(f"{ROOT}/"):
            return
        if event == "return":
            if inside:
                inside.pop()
            return
        place, name = file.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname
        room, owner = room_of(place), frame.f_locals.get("self")
        made = name.endswith(".__init__") and isinstance(owner, torch.nn.Module)
        in_layer = room in LAYERS or made or (bool(inside) and inside[-1])
        hidden = "<" in name or name.endswith("__") or is_property(frame)
        aside = room in ASIDE or place == OPTIONS or (place in PURE and "." not in name)
        if not (in_layer or hidden or aside):
            found.setdefault(f"{place}::{name}")
        inside.append(in_layer)

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
    steps = count()
    return lambda: trainer.loss_of_step(next(steps))


def encode() -> Callable[[], object]:
    encoder = GraphEncoder(d_in=4, d_node=8, num_layers=1)
    x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
    return lambda: encoder(x, edge_index)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("title", "prepare", "most"),
    [("A puzzle", solve, 25), ("A batch", step, 19), ("A graph", encode, 12)],
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
