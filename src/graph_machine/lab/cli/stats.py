"""`graph-machine stats`: the paper's statistics tables and region detectors of checkpoints."""

import json

from rich.console import Console
from rich.markdown import Markdown

from graph_machine.errors import ConfigError, count_of
from graph_machine.files import write_text
from graph_machine.lab.analysis.report import plain, statistics_markdown
from graph_machine.lab.analysis.statistics import Group, Statistics, collect_statistics
from graph_machine.lab.cli._options import Stats
from graph_machine.lab.conditions.budgets import config_for, setting_text
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.opening import LoadedModel, open_model
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.zoo.assess import held_out

# Settings of training that change what is learned; the others say how it is carried out.
RECIPE = (
    "peak_lr", "warmup", "final_lr", "beta1", "beta2", "clip_norm", "entropy_weight", "entropy_of",
    "policy_entropy",
)  # fmt: skip


def main(args: Stats) -> int:
    if not args.checkpoints:
        raise ConfigError("stats: name at least one checkpoint or run folder.")
    if args.growth and args.rounds is not None:
        raise ConfigError("stats --growth looks at layers: leave --rounds out.")
    if args.growth:
        return _growth(args)
    console, progress = Console(), Console(stderr=True)
    found: dict[tuple[str, str], list[tuple[LoadedModel, Statistics]]] = {}
    for name in args.checkpoints:
        subject = open_model(name).for_data(args.data)
        subject.check_layers()
        subject.model.check_rounds(args.rounds)
        task, where = _examples(subject, args)
        batches = task.split_batches(args.split or "test", args.batch_size, args.limit)
        size = task.sizes[args.split or "test"]
        used = min(args.limit or size, size)
        print(f"{subject.name}: {count_of(used, task.examples_word)}, {where}")
        with progress.status(f"{subject.name}: measuring ..."):
            how = {"box": task.blocks, "detect": args.detect, "rounds": args.rounds}
            one = collect_statistics(subject.model, batches, **how)
        # Seeds of one condition, budget and settings belong together; nothing else does.
        asked = [] if args.rounds is None else [f"measured with {count_of(args.rounds, 'rounds')}"]
        budget = ", ".join([subject.budget, *changed_settings(subject), *asked])
        found.setdefault((subject.condition, budget), []).append((subject, one))
    groups = []
    for (condition, budget), members in found.items():
        task, grid = members[0][0].known_task, members[0][0].model.spec.grid
        seeds, each = (subject.seed for subject, _ in members), (one for _, one in members)
        about = (grid, task.blocks, task.examples_word)
        groups.append(Group(condition, budget, tuple(seeds), tuple(each), *about))
    text = statistics_markdown(groups)
    console.print(Markdown(text) if console.is_terminal else text, soft_wrap=True, markup=False)
    if args.out is not None:
        from graph_machine.lab.analysis.figures.board import save_figure
        from graph_machine.lab.analysis.figures.layers import layers_figure, reach_figure

        write_text(args.out / "statistics.md", text)
        write_text(args.out / "statistics.json", json.dumps(plain(groups)) + "\n")
        for name, figure in (("by-layer", layers_figure(groups)), ("reach", reach_figure(groups))):
            if figure is not None:
                save_figure(figure, args.out / name)
        console.print(f"Written: {args.out}", highlight=False)
    return 0


def _examples(subject: LoadedModel, args: Stats) -> tuple[Task, str]:
    """What to measure on, and how to say so."""
    if args.data is not None and args.split is None:
        return held_out(subject, args.data)
    of = args.data or "its generated data"
    return subject.open_data(args.data), f"the {args.split or 'test'} split of {of}"


def _growth(args: Stats) -> int:
    from graph_machine.lab.analysis.figures.board import save_figure
    from graph_machine.lab.analysis.growth import growth_figure, region_growth

    for name in args.checkpoints:
        subject = open_model(name).for_data(args.data)
        task, _ = _examples(subject, args)
        limit = args.limit or args.detect or None
        batches = list(task.split_batches(args.split or "test", args.batch_size, limit))
        if not batches or not task.example_regions(batches[0]):
            raise ConfigError(
                f"stats --growth: the task of {name} has no regions that differ by example."
            )
        found = region_growth(subject.model, task, batches)
        many = count_of(found.examples, task.examples_word)
        text = f"{name}: {many}, overlap of the best slot\n\n{found.markdown()}"
        print(text)
        if args.out is not None:
            write_text(args.out / "growth.md", f"{text}\n")
            middle = (subject.model.spec.num_nodes or 0) // 2
            save_figure(
                growth_figure(subject.model, task, batches[0], found, middle), args.out / "growth"
            )
    return 0


def changed_settings(subject: LoadedModel) -> list[str]:
    """The settings that differ from the condition; the budget shows the size."""
    if subject.condition not in CONDITIONS:
        return []
    expected = config_for(subject.condition).flat()
    ours = {f"model.{key}": value for key, value in subject.model.config.flat().items()}
    recipe = subject.facts.get("config", {}).get("train", {})
    ours |= {f"train.{key}": recipe[key] for key in RECIPE if key in recipe}
    return [
        f"{key}={setting_text(value)}"
        for key, value in ours.items()
        if key != "model.num_layers" and expected[key] != value
    ]
