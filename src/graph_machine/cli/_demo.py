"""The demo: a small GM and a Transformer of the same size on jigsaw boards, side by side.

Regions differ from puzzle to puzzle, and both models are told of them only whether a cell and its
neighbour share one. Both get the same data and steps, and each its own learning rate
(docs/jigsaw.md). The number of steps is what fits into the time on this machine, 500 at most, and
is told with the result.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from graph_machine.analysis.figures.board import Geometry, Panel, panels
from graph_machine.analysis.figures.style import save
from graph_machine.conditions.budgets import config_for
from graph_machine.config import ExperimentConfig
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen
from graph_machine.tasks.base import Task, baseline_scores, make_task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.scores import wilson
from graph_machine.training import Result, train
from graph_machine.training.cost import measure_cost
from graph_machine.training.devices import choose_device
from graph_machine.training.log import Progress, duration

GM, TRANSFORMER = CONDITIONS = ("jigsaw-gm", "jigsaw-transformer")
BOARDS = {"side": 5, "puzzles": 20_000, "clues_extra": 6}
MOST_STEPS, FEWEST_STEPS = 500, 50
# What steps may take of the time that is left: evaluation and the picture need some of it, and
# a machine does not keep its pace.
SHARE = 0.8


@dataclass(frozen=True)
class Demo:
    """Where the demo writes, and what it may take."""

    out: Path
    seconds: float = 225.0
    steps: int | None = None
    seed: int = 0
    device: str | None = None

    def config(self, condition: str, steps: int) -> ExperimentConfig:
        config = config_for(condition, "cpu").with_task(**BOARDS)
        every = max(1, steps // 5)
        return config.with_train(
            steps=steps, log_every=max(1, steps // 50), eval_every=every, save_every=every
        )

    def fitting_steps(self, task: Task, start: float) -> int:
        """Steps that both models can take in the time left, by a few that are measured."""
        if self.steps is not None:
            return self.steps
        pair = sum(self.seconds_per_step(condition, task) for condition in CONDITIONS)
        left = self.seconds - (time.perf_counter() - start)
        fitting = int(left * SHARE / pair)
        return max(FEWEST_STEPS, min(MOST_STEPS, fitting // 50 * 50))

    def seconds_per_step(self, condition: str, task: Task) -> float:
        config, device = self.config(condition, MOST_STEPS), choose_device(self.device)
        return measure_cost(config, task, seed=self.seed, device=device, steps=2).seconds_per_step

    @contextmanager
    def best_threads(self, task: Task) -> Iterator[None]:
        """One thread or torch's number, whichever is faster here; put back afterwards.

        Threads wait for each other within every operation, so on a machine whose cores are taken by
        others two of them can be many times slower than one.
        """
        usual = torch.get_num_threads()
        try:
            if usual > 1 and choose_device(self.device).type == "cpu" and self.steps is None:
                torch.set_num_threads(1)
                alone = self.seconds_per_step(GM, task)
                torch.set_num_threads(usual)
                if alone < self.seconds_per_step(GM, task):
                    torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(usual)


def run_demo(demo: Demo, console: Console, progress: Progress = "auto") -> dict[str, Result]:
    """Data, two runs, a comparison, one puzzle solved, one picture."""
    start = time.perf_counter()
    console.print(
        "1. Puzzles: 5x5 jigsaw Sudoku, generated here (cached for the next time).\n"
        "   Every row, column and region holds every digit once. Regions differ from puzzle to\n"
        "   puzzle; a model is told only which neighbours of a cell are in the same region."
    )
    task = make_task(demo.config(GM, MOST_STEPS).task, seed=demo.seed)
    sizes = ", ".join(f"{count:,} {split}" for split, count in task.sizes.items())
    console.print(f"   {sizes}; no test region occurs in training, not even turned or mirrored")
    with demo.best_threads(task):
        results = _train_both(demo, task, start, console, progress)
    console.print("3. Result on test puzzles that neither model has seen")
    console.print(comparison(results, task))
    model = GraphMachine.from_pretrained(results[GM].folder)
    puzzle, number = first_solved(model, task)
    console.print(f"4. Test puzzle {number}, as the GM fills it (' marks its digits, ! wrong ones)")
    show_solution(model, task, puzzle, console)
    written = edge_picture(model, task, puzzle, demo.out / "edges")
    console.print(f"5. The edges that the GM built for one cell, layer by layer: {written}")
    return results


def _train_both(
    demo: Demo, task: Task, start: float, console: Console, progress: Progress
) -> dict[str, Result]:
    steps = demo.fitting_steps(task, start)
    console.print(f"2. Training: {' and '.join(CONDITIONS)}, 6 layers, {steps} steps of 32 puzzles")
    results = {}
    for condition in CONDITIONS:
        results[condition] = train(
            demo.config(condition, steps),
            seed=demo.seed,
            task=task,
            out=demo.out / f"{condition}-{steps}-seed-{demo.seed}",
            condition=condition,
            budget="demo",
            device=demo.device,
            progress=progress,
            resume=True,
        )
    return results


def comparison(results: dict[str, Result], task: Task) -> Table:
    """Both models and, for reference, a solver that knows the rules."""
    table = Table("model", "parameters", "boards", "95% interval", "cells", "time", box=None)
    for name, result in results.items():
        found = result.metrics
        total = found["test_examples"]
        low, high = wilson(found["board_accuracy"] * total, total)
        table.add_row(
            name,
            f"{found['parameters']:,}",
            f"{found['board_accuracy']:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{found['cell_accuracy']:.1%}",
            duration(found["seconds"]),
        )
    for name, scores in baseline_scores(task, "test").items():
        found = scores.summary()
        boards, cells = (metric.show(found[metric.name]) for metric in task.metrics)
        table.add_row(name, "", boards, "", cells, "")
    return table


def first_solved(model: GraphMachine, task: Task, among: int = 64) -> tuple[Batch, int]:
    """The first test puzzle that the model solves and its number, else the first of all."""
    batch = next(task.split_batches("test", among, among))
    found = model.predict(batch.tokens, batch.graph)
    right = task.score(torch.from_numpy(found.answers), batch)["example_right"]
    row = int(right.int().argmax())  # 0 where none is right
    return batch.rows([row]), row


def show_solution(model: GraphMachine, task: Task, example: Batch, console: Console) -> None:
    found = model.predict(example.tokens, example.graph)
    answer = task.show(example, found.answers[0], found.confidences[0], check=True)
    console.print(answer.draw())
    console.print(answer.verdict())


@torch.no_grad()
def edge_picture(model: GraphMachine, task: Task, example: Batch, path: Path) -> Path:
    """Where the edges of a blank point: at the input, then as each layer has built them."""
    tokens, source = example.tokens, int(example.where[0].nonzero()[0])
    assert tokens is not None
    assert task.spec.grid is not None
    rows, columns = task.spec.grid
    regions = task.example_regions(example)["region"][0]
    built: dict[str, np.ndarray] = {}

    def keep(name: str, tensor: torch.Tensor) -> None:
        if name.endswith("edge.0.address_outs"):
            built[name] = tensor[0, source].cpu().numpy()

    model = model.cpu().eval()
    start = model.initial_state(tokens, example.graph, None).addresses
    assert start is not None
    with listen(model, keep):
        model(tokens, example.graph)
    layers = [start.to_dense()[0, source].numpy(), *built.values()]
    drawn = [
        [
            Panel(
                title=f"edge {slot}" if number == 0 else "",
                values=weights,
                source=source,
                digits=tokens[0].numpy(),
            )
            for slot, weights in enumerate(layer)
        ]
        for number, layer in enumerate(layers)
    ]
    figure = panels(
        drawn,
        Geometry(rows, columns, None, regions),
        labels=["input", *(f"layer {number}" for number in range(len(built)))],
        title="Where the edges of the framed cell point",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(figure, path, ("png",))[0]
