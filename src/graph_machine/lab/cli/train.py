"""`graph-machine train`: one condition, one seed."""

import json
import os
import shlex
import sys
from dataclasses import replace
from typing import NamedTuple

from graph_machine.errors import ConfigError, count_of
from graph_machine.lab.cli._options import Train
from graph_machine.lab.conditions.budgets import BUDGETS, FAMILIES, config_for, with_settings
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.training import Interrupted, RunFolder, Sink, default_out, train
from graph_machine.lab.training.cost import blank_task, check_fits, check_step, estimate_cost
from graph_machine.lab.training.log import TensorBoard, WeightsAndBiases
from graph_machine.machine import choose_device

PAPER = "paper"


class Facts(NamedTuple):
    """Facts of a run that are not in its config."""

    condition: str | None
    budget: str
    seed: int
    data: str | None


def resolved_config(args: Train) -> ExperimentConfig:
    """Budget, then condition, then the user's settings, later ones last."""
    assert args.condition is not None
    return config_for(args.condition, args.budget or PAPER, args.box, settings_of(args), args.task)


def settings_of(args: Train) -> list[str]:
    return [*args.set, *([] if args.steps is None else [f"train.steps={args.steps}"])]


def _from_folder(args: Train) -> tuple[ExperimentConfig, Facts]:
    """The config and facts of the run to resume or extend.

    Other options on the command line must agree with the run.
    """
    if args.out is None or not (args.resume or args.extend):
        raise ConfigError(
            "Name a condition ('graph-machine conditions' lists them), or --resume --out RUN."
        )
    folder = RunFolder(args.out)
    run, config = folder.info(), folder.config()
    if args.extend and args.steps is None:
        raise ConfigError("--extend needs the new number of steps: --extend --steps N --out RUN.")
    settings = list(args.set) if args.extend else settings_of(args)
    changed = with_settings(config, settings).differences(config)
    known = {"seed": run.seed, "budget": run.budget, "task": config.task.name}
    known |= {"box": getattr(config.task, "box", None), "init_from": run.init_from}
    changed |= {k: v for k, was in known.items() if (v := getattr(args, k)) not in (None, was)}
    if changed:
        was = config.flat() | known
        what = ", ".join(f"{key} was {was[key]}, is {value}" for key, value in changed.items())
        raise ConfigError(
            f"This run began with other settings ({what}). Resume it as it is, give it more steps "
            f"with --extend, or begin another with --init-from: {args.out}"
        )
    if args.extend:
        assert args.steps is not None
        config = folder.extend(args.steps)
    data = None if run.data.source == "generated" else run.data.source
    return config, Facts(run.condition, run.budget, run.seed, args.data or data)


def dry_run(args: Train, config: ExperimentConfig) -> None:
    """Print the config and an estimate of its cost; no example of the run's data is made."""
    device, task = choose_device(args.device), task_of(config.task)
    if not args.ignore_memory:
        check_fits(config, task, device=device)
    if args.data is not None:
        task = task.open(args.data, args.seed or 0)
        sizes = ", ".join(f"{count:,} {split}" for split, count in task.sizes.items())
        data = f"{sizes} {task.examples_word} of {args.data}"
    else:
        counts = [getattr(config.task, name, None) for name in ("puzzles", "mazes")]
        count = next((number for number in counts if number is not None), None)
        word = task.examples_word
        data = f"{word} are made as training needs them"
        if count is not None:
            data = f"the run would generate {count:,} {word}, or take them from the cache"
        task = blank_task(task)
    cost = estimate_cost(config, task, seed=args.seed or 0, device=device)
    if not args.ignore_memory:
        check_step(config, task, cost.memory_bytes, device)
    if args.json:
        print(json.dumps({"config": config.to_dict(), "cost": cost.to_dict()}, indent=2))
        return
    for key, value in config.flat().items():
        print(f"{key} = {value}")
    print(f"\ndata         {data}\n{cost}\n(estimated from a few layers and examples)")


def refuse_paper_size(args: Train, steps: int) -> None:
    """On a CPU, the full-size recipe starts only if it was requested by name."""
    if choose_device(args.device).type == "cpu":
        small = " or ".join(name for name in BUDGETS if name != PAPER)
        raise ConfigError(
            "Without --budget this is the paper's recipe at full size, "
            f"{count_of(steps, 'steps')}: days to weeks on a CPU. Choose --budget {small} "
            "('--budget paper' starts it), or --steps."
        )


def main(args: Train) -> int:
    if args.condition is None and args.task is not None and not (args.resume or args.extend):
        usual = FAMILIES[args.task].condition if args.task in FAMILIES else "gm"
        args = replace(args, condition=usual)
    if args.extend and args.condition is not None:
        raise ConfigError("--extend reads the condition from --out; leave its name out.")
    if args.condition is None:
        config, facts = _from_folder(args)
    else:
        config = resolved_config(args)
        facts = Facts(args.condition, args.budget or PAPER, args.seed or 0, args.data)
    if args.dry_run:
        dry_run(args, config)
        return 0
    sized = any(text.startswith("train.steps=") for text in settings_of(args))
    if args.budget is None and not (sized or args.resume or args.extend):
        refuse_paper_size(args, config.train.steps)
    out = args.out or default_out(config, facts.condition, facts.budget, facts.seed)
    first = os.environ.get("RANK", "0") == "0"
    sinks: list[Sink] = []
    if args.tensorboard and first:
        sinks.append(TensorBoard(out / "tensorboard"))
    if args.wandb and first:
        name = f"{facts.condition}-seed-{facts.seed}"
        sinks.append(WeightsAndBiases(out / "wandb", name, config.to_dict()))
    try:
        result = train(
            config,
            **facts._asdict(),
            out=out,
            resume=args.resume or args.extend,
            init_from=args.init_from,
            device=args.device,
            progress=args.progress,
            sinks=sinks,
            ignore_memory=args.ignore_memory,
        )
    except Interrupted as stopped:
        if first:
            print(
                f"Stopped; saved at step {stopped.step}. Continue with: "
                f"graph-machine train --resume --out {shlex.quote(str(out))}",
                file=sys.stderr,
            )
        return 128 + stopped.signal_number
    if first:
        found, task = result.metrics, task_of(config.task)
        scores = ", ".join(f"{m.title} {m.show(found[m.name])}" for m in task.metrics)
        print(
            json.dumps(found, indent=2)
            if args.json
            else f"{scores} of {found['test_examples']:,} test {task.examples_word} after "
            f"{count_of(found['steps'], 'steps')} ({found['seconds']:.0f} s): {result.folder}"
        )
    return 0
