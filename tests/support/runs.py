"""Tiny runs: a config that trains in a second, and puzzles for it without a generator."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graph_machine.lab.conditions.registry import BASE, CONDITIONS
from graph_machine.lab.config import ExperimentConfig, SudokuConfig
from graph_machine.lab.tasks.sudoku.board import BoxShape, valid_grids
from graph_machine.lab.tasks.sudoku.reader import HEADER
from graph_machine.lab.tasks.sudoku.store import SudokuStore, write_store
from graph_machine.lab.training import train
from graph_machine.lab.training.trainer import Trainer

BOX = BoxShape(2, 2)

TINY = (
    BASE.replace(task=SudokuConfig(box="2x2", puzzles=200))
    .with_model(
        num_layers=2,
        d_node=8,
        d_edge=4,
        num_edges=5,
        num_heads=2,
        d_attn_key=4,
        d_attn_value=4,
        d_ref_key=4,
        expansion=2,
    )
    .with_train(
        steps=6, batch_size=8, log_every=2, eval_every=3, eval_examples=8, save_every=2, warmup=0.2
    )
)


def tiny(condition: str = "gm", **train: object) -> ExperimentConfig:
    return CONDITIONS[condition].change(TINY).with_train(**train)


def recurrent(**train: object) -> ExperimentConfig:
    """A core, with everything that training varies for it."""
    config = tiny("gm-recurrent").with_model(rounds=4).with_task(clues_start=4)
    settings = {"rounds_start": 2, "rounds_min": 1, "grad_rounds": 2, "ema": 0.9}
    return config.with_train(**{**settings, **train})


def puzzle_store(count: int = 200, seed: int = 0) -> SudokuStore:
    """4x4 grids with about half of the cells blanked; unique solutions do not matter here."""
    lines = list(permutations(range(1, 5)))
    rows = np.array(lines, dtype=np.uint8)
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    while len(found) < count:
        grids = rows[rng.integers(len(rows), size=(20_000, 4))].reshape(-1, 16)
        found += list(grids[valid_grids(grids, BOX)])
    solutions = np.stack(found[:count])
    puzzles = np.where(rng.random(solutions.shape) < 0.5, 0, solutions).astype(np.uint8)
    ratings = rng.choice([0.0, 1.5, 3.0, 5.0], size=count).astype(np.float32)
    return SudokuStore.from_arrays(puzzles, solutions, ratings, BOX)


def puzzle_lines(count: int) -> str:
    """The same as the text of a file."""
    store = puzzle_store(count)
    rows = zip(store.puzzles, store.solutions, store.clues, strict=True)
    lines = [
        f"{number},{''.join(map(str, puzzle))},{''.join(map(str, solution))},{clues},1.5"
        for number, (puzzle, solution, clues) in enumerate(rows)
    ]
    return "\n".join([HEADER, *lines, ""])


def write_puzzles(folder: Path, count: int = 200, seed: int = 0) -> Path:
    """The same as a store on disk."""
    write_store(folder, [puzzle_store(count, seed)], lambda: (BOX, {}))
    return folder


def crash(at: int, **run: Any) -> None:
    """A run that dies in step `at`."""

    class Stop(Exception):
        pass

    real = Trainer.step

    def step(self: Trainer, number: int, **options: bool) -> dict[str, float]:
        if number == at:
            raise Stop
        return real(self, number, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):  # noqa: PT012
        patch.setattr(Trainer, "step", step)
        train(**run, progress="none")


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def same_bits(run: Path, other: Path) -> bool:
    ours, theirs = weights_of(run), weights_of(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
