"""`graph-machine demo`: a small GM and a Transformer of the same size on jigsaw boards.

Regions differ from puzzle to puzzle. Both models see only whether a cell and its neighbour share
one. Both get the same data and steps, and each its own learning rate (docs/jigsaw.md). The demo
takes as many steps as fit into its time on this machine, 500 at most, and prints their number.
"""

import time

import torch
from rich.console import Console
from rich.table import Table

from graph_machine.lab.cli._options import Demo
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import Task, baseline_scores, make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.scores import wilson
from graph_machine.lab.training import Result, train
from graph_machine.lab.training.cost import best_threads, measure_cost
from graph_machine.lab.training.log import duration
from graph_machine.machine import choose_device
from graph_machine.models import GraphMachine

GM, TRANSFORMER = CONDITIONS = ("jigsaw-gm", "jigsaw-transformer")
BOARDS = {"side": 5, "puzzles": 20_000, "clues_extra": 6}
MOST_STEPS, FEWEST_STEPS = 500, 50
# The share of the remaining time for steps: evaluation and the picture need some of it, and
# the speed of a machine varies.
SHARE = 0.8


def config_of(condition: str, steps: int) -> ExperimentConfig:
    config, every = config_for(condition, "cpu").with_task(**BOARDS), max(1, steps // 5)
    return config.with_train(
        steps=steps, log_every=max(1, steps // 50), eval_every=every, save_every=every
    )


def fitting_steps(args: Demo, task: Task, start: float) -> int:
    """Steps that both models can take in the remaining time, from a few measured ones."""
    if args.steps is not None:
        return args.steps
    how = {"seed": args.seed, "device": choose_device(args.device), "steps": 2}
    costs = [measure_cost(config_of(name, MOST_STEPS), task, **how) for name in CONDITIONS]
    left = args.seconds - (time.perf_counter() - start)
    fitting = int(left * SHARE / sum(cost.seconds_per_step for cost in costs))
    return max(FEWEST_STEPS, min(MOST_STEPS, fitting // 50 * 50))


def main(args: Demo) -> int:
    """Data, two runs, a comparison, one puzzle solved, one picture."""
    start = time.perf_counter()
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        "1. Puzzles: 5x5 jigsaw Sudoku, generated here (cached for the next time).\n"
        "   Every row, column and region holds every digit once. Regions differ from puzzle to\n"
        "   puzzle; a model sees only which neighbours of a cell are in the same region."
    )
    first = config_of(GM, MOST_STEPS)
    task = make_task(first.task, seed=args.seed)
    sizes = ", ".join(f"{count:,} {split}" for split, count in task.sizes.items())
    console.print(f"   {sizes}; no test region occurs in training, not even turned or mirrored")
    results = {}
    with best_threads(first, task, seed=args.seed, device=choose_device(args.device)):
        steps = fitting_steps(args, task, start)
        names = " and ".join(CONDITIONS)
        console.print(f"2. Training: {names}, 6 layers, {steps} steps of 32 puzzles")
        for condition in CONDITIONS:
            out = args.out / f"{condition}-{steps}-seed-{args.seed}"
            how = {"seed": args.seed, "device": args.device, "progress": args.progress}
            about = {"condition": condition, "budget": "demo", "resume": True}
            results[condition] = train(
                config_of(condition, steps), task=task, out=out, **how, **about
            )
    console.print("3. Result on test puzzles that neither model has seen")
    console.print(comparison(results, task))
    model = GraphMachine.from_pretrained(results[GM].folder)
    puzzle, number = first_solved(model, task)
    console.print(f"4. Test puzzle {number}, as the GM fills it (' marks its digits, ! wrong ones)")
    found = model.predict(puzzle.tokens, puzzle.graph)
    answer = task.show(puzzle, found.answers[0], found.confidences[0], check=True)
    console.print(answer.draw())
    console.print(answer.verdict())
    # matplotlib: not before it is needed
    from graph_machine.lab.analysis.figures.board import save_figure
    from graph_machine.lab.analysis.growth import growth_figure, region_growth

    growth, blank = region_growth(model, task, [puzzle]), int(puzzle.where[0].nonzero()[0])
    figure = growth_figure(model, task, puzzle, growth, blank)
    (written,) = save_figure(figure, args.out / "edges", ("png",))
    console.print(f"5. The edges that the GM built for one cell, layer by layer: {written}")
    console.print(f"All in {duration(time.perf_counter() - start)}; runs are in {args.out}.")
    return 0


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


def first_solved(model: GraphMachine, task: Task) -> tuple[Batch, int]:
    """The first test puzzle that the model solves and its number, else the first of all."""
    batch = next(task.split_batches("test", 64, 64))
    found = model.predict(batch.tokens, batch.graph)
    right = task.score(torch.from_numpy(found.answers), batch)["example_right"]
    row = int(right.int().argmax())  # 0 if none is right
    return batch[[row]], row
