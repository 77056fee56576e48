"""Options of every command: what they are, how they are read, where their values are checked.

Nothing here waits for torch, so `--help` and a mistyped option are answered at once.
"""

import contextlib
import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_type_hints

import tyro

from graph_machine.config.base import Bounds
from graph_machine.errors import ConfigError

T = TypeVar("T")
Positional = tyro.conf.Positional

# `--steps INT`, not `--steps {None}|INT`; a positional word is shown by its name.
STYLE = (tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)


@dataclass(frozen=True)
class Endings:
    """How the name of a file has to end."""

    endings: tuple[str, ...]

    def check(self, name: str, value: Path) -> None:
        if not value.name.lower().endswith(self.endings):
            raise ConfigError(
                f"{name} should end in {' or '.join(self.endings)}, got '{value.name}'."
            )


# What several commands take. Seeds are those that every random generator takes.
Count = Annotated[int, Bounds(1)]
CountOrZero = Annotated[int, Bounds(0)]
Seed = Annotated[int, Bounds(0, 2**32 - 1)]
Seconds = Annotated[float, Bounds(0, above=True)]
Picture = Annotated[Path, Endings((".png", ".svg"))]
Words = tuple[str, ...]
Settings = Annotated[Words, tyro.conf.arg(metavar="KEY=VALUE ...")]
RAY = "default"  # the cluster that Ray finds by itself
Progress = Literal["auto", "bar", "plain", "none"]
Split = Literal["test", "eval", "train"]


@dataclass_transform(frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """A frozen dataclass with readable help.

    It omits `(default: None)`, because an option's text explains that case, and prints
    `--table TABLE ...` instead of `--table [STR [STR ...]]`.
    """
    for name, hint in cls.__annotations__.items():
        about: dict[str, str] = {}
        if getattr(cls, name, ...) in (None, (), ""):
            about["help_behavior_hint"] = ""
        if hint == Words:
            about["metavar"] = f"{name.upper().replace('_', '-')} ..."
        if about:
            cls.__annotations__[name] = Annotated[hint, tyro.conf.arg(**about)]
    return dataclass(frozen=True)(cls)


@options
class Demo:
    """Generate 5x5 jigsaw puzzles, train a small GM and a Transformer of about its size, compare
    them, solve a puzzle and draw the edges. An interrupted demo continues where it stopped."""

    out: Path = Path("out/demo")  # where runs and the picture go
    seconds: Seconds = 225.0
    """the time that it may take; the number of steps follows from it, 500 at most"""
    steps: Count | None = None  # steps of each model, whatever time they take
    seed: Seed = 0  # initialisation, split and order of the data
    device: str | None = None  # cpu, cuda, ...; default: the accelerator if there is one
    progress: Progress = "auto"  # live bar, plain lines, or nothing; auto: a bar on a terminal


@options
class Conditions:
    """List the conditions, or show one of them: `graph-machine conditions show gm`."""

    words: Annotated[Words, tyro.conf.Positional, tyro.conf.arg(metavar="[show NAME]")] = ()
    budget: str = "paper"  # with show: the settings at this budget (paper, cpu, smoke)
    json: bool = False  # print JSON, for programs


@options
class Train:
    """Train one condition with one seed, then test it. `graph-machine conditions` lists them."""

    condition: Positional[str | None] = None
    """the condition; may be left out with --task, and with --resume, which reads it from --out"""
    seed: Seed | None = None  # initialisation, split and order of the data; default: 0
    budget: str | None = None
    """paper (the default): the recipe at full size; cpu: small boards, minutes; smoke: seconds;
    on a CPU, the full size has to be named"""
    task: str | None = None
    """what is learned: sudoku, jigsaw, maze, pointers, algorithms, recall, text, clrs, relations,
    or your own (--import); default: the condition's own"""
    box: str | None = None  # box shape of the boards, such as 2x3; default: the budget's own
    data: str | None = None  # puzzle file or store; default: generate (and cache) a set
    steps: Count | None = None  # the same as --set train.steps=N
    set: Settings = ()  # change any setting, such as model.num_layers=6 train.peak_lr=5e-4
    out: Path | None = None  # run folder; default: runs/BUDGET/BOARD/CONDITION/seed-N
    init_from: str | None = None
    """begin with the weights of this run, checkpoint or shipped model, as far as they fit"""
    resume: bool = False  # continue the run in this folder; begin it if there is none
    extend: bool = False  # continue the finished run in --out to --steps; its result so far is kept
    device: str | None = None  # cpu, cuda, cuda:1, mps, xpu; default: the accelerator if any
    progress: Progress = "auto"  # live bar, plain lines, or nothing; auto: a bar on a terminal
    tensorboard: bool = False  # also log to RUN/tensorboard
    wandb: bool = False  # also log to Weights & Biases (WANDB_MODE=offline works)
    ignore_memory: bool = False
    """begin even if a step is expected to need more than the free memory"""
    dry_run: bool = False
    """print config, parameters, memory and time per step (estimated), generate nothing, and stop"""
    json: bool = False  # print the result (or the dry run) as JSON


@options
class Evaluate:
    """A task's metrics of a model, in total and by group (rating, clues), with 95% intervals."""

    model: Positional[str]  # run folder, checkpoint folder, or the name of a model
    data: str | None = None  # puzzle file or store; default: the test split of the model's own run
    limit: Count | None = None  # only the first N puzzles
    rounds: str | None = None
    """rounds of a recurrent core; several, such as 4,8,16,32, give accuracy against rounds"""
    until_stable: Count | None = None
    """stop an example when its answer has not changed for this many rounds"""
    tries: Count = 1
    """retry in another form (digits relabelled, lines moved) while an answer breaks the rules, up
    to this many tries in all"""
    plot: Picture | None = None
    """with several rounds: also draw accuracy against rounds, as .png or .svg"""
    batch_size: Count = 256  # puzzles at a time
    device: str | None = None  # cpu, cuda, ...; default: the accelerator if there is one
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """autocast; auto: bfloat16 where it is faster on the device"""
    json: bool = False  # print JSON, for programs


@options
class Solve:
    """Solve puzzles with a model; the answer is checked, and the exit status is 0 if every
    answer is a valid solution, 1 if one is not, 2 for an error."""

    model: Positional[str]  # run folder, checkpoint folder, or the name of a model
    puzzle: Positional[str | None] = None
    """the board row by row, '.' or 0 for a blank; - reads lines from standard input"""
    file: Path | None = None
    """one puzzle per line, or rows of a puzzle file; bad lines are reported, the others solved"""
    check: bool = False  # compare with the exact solver
    confidence: bool = False  # show each digit's probability in percent
    rounds: Count | None = None  # rounds of a recurrent core; default: as trained
    until_stable: Count | None = None
    """stop when an answer has not changed for this many rounds, and report the rounds used"""
    tries: Count = 1
    """retry in another form (digits relabelled, lines moved) while an answer breaks the rules, up
    to this many tries in all"""
    limit: Count | None = None  # only the first N puzzles
    device: str | None = None  # cpu, cuda, ...; default: the accelerator if there is one
    json: bool = False  # print a JSON list with an entry per puzzle, for programs


@options
class Sweep:
    """Train a grid of conditions and seeds. Finished runs are skipped, interrupted ones resumed."""

    table: Words = ()
    """every condition of these tables: 1 to 8, C.1 to C.6 of the paper, jigsaw, maze, ..."""
    conditions: str = ""
    """conditions by name, separated by commas; 'graph-machine conditions' lists them"""
    all: bool = False  # every condition, those beyond the paper too
    seeds: str = "0-2"  # such as 0-9 or 0,3,7
    budget: str = "paper"
    """paper: the recipe at full size; cpu: small boards, minutes; smoke: seconds"""
    task: str | None = None
    """what is learned: sudoku, jigsaw, maze, pointers, algorithms, recall, text, clrs, relations,
    or your own (--import); default: each condition's own"""
    box: str | None = None  # box shape of the boards, such as 2x3; default: the budget's own
    set: Settings = ()  # change any setting of all runs, such as train.peak_lr=5e-4
    steps: Count | None = None  # the same as --set train.steps=N
    grid: Annotated[Words, tyro.conf.arg(metavar="KEY=VALUE,VALUE ...")] = ()
    """run every combination of these settings too, such as train.peak_lr=1e-3,2e-3"""
    data: str | None = None  # puzzle file or store; default: generate (and cache) a set
    out: Path = Path("runs")  # folder of the run folders
    workers: Count = 1
    """runs at a time on this machine, each pinned to its share of cores or accelerators"""
    ray: Annotated[str | None, tyro.conf.arg(metavar="[ADDRESS]")] = None
    """run on the Ray cluster at ADDRESS (local: a new one here, for this machine only); without
    ADDRESS, the one of RAY_ADDRESS or of this machine"""
    cpus: Count = 1  # with --ray: CPUs of each run
    gpus: Annotated[float, Bounds(0)] = 0.0
    """with --ray: accelerators of each run; a share such as 0.25 lets four runs use one"""
    retries: CountOrZero = 3
    """with --ray: how often a run is restarted after its worker or machine was lost"""
    dry_run: bool = False
    """list the runs and their status (interrupted ones would continue), and stop"""


Axis = Literal["steps", "seconds", "flops"]


@options
class ReportOptions:
    """Tables of the paper from run folders; runs of different budgets are never mixed."""

    runs: Positional[tuple[Path, ...]] = (Path("runs"),)
    """folders to look for runs in, and study files (see --pack)"""
    table: Words = ()
    """only these tables: 1 to 8, C.1 to C.6 (of the paper), jigsaw, maze, pointers, algorithms,
    recall, text, clrs, relations, beyond; default: all that have runs"""
    format: Literal["md", "html", "json", "csv"] | None = None
    """default: by the ending of --out, else md"""
    out: Path | None = None  # file to write; default: print
    curves: Picture | None = None
    """draw learning curves into this .png or .svg instead of printing; with --out or --format, do
    both (a page of html has curves inside)"""
    against: tuple[Axis, ...] = ("steps", "seconds", "flops")
    """axes of the learning curves, a panel for each"""
    into: Path | None = None
    """instead of printing, renew the marked tables and curves inside this page of Markdown"""
    pack: Path | None = None
    """instead of printing, write the records of all runs into this NAME.study.jsonl: settings,
    results and evaluations, without training lines"""
    compare: str = ""
    """instead of tables, a paired test of two conditions, such as gm,transformer"""


@options
class Doctor:
    """Device, which implementation every op takes, settings that matter, what was never run."""

    device: str | None = None  # cpu, cuda, cuda:1, mps, xpu; default: the accelerator if any
    json: bool = False  # print as JSON


@options
class Bench:
    """Time and memory of the fast path beside the paper's listing, a Transformer and the floor."""

    suite: str = "quick"
    """quick (a minute), standard (the figures of docs/fast.md), scale (address spaces against n),
    rounds (what a recurrent model costs), gpu (what docs/gpu.md expects of a CUDA
    GPU; writes the file to send us)"""
    out: str = "benchmarks/results"  # folder for the CSV, the Markdown page and the plot
    rounds: Count | None = None  # turns of every contestant; default: the suite's own
    threads: Count | None = None  # torch threads; default: torch's own choice
    only: str | None = None
    """only the cases whose name matches this, such as 'layer n=81'; other rows of the file stay"""
    max_nodes: Count = 100_000  # suite scale: largest n


@options
class RecordOptions:
    """Run a model on a few puzzles and store what it computes inside, by name."""

    checkpoint: Positional[str]  # Checkpoint or run folder, shipped model, or handmade:3x3.
    out: Path = Path("record.rec.safetensors")  # File to write.
    data: str | None = None
    """Puzzle file or store; without it, the data that the model's own task generates."""
    split: Split = "test"  # Part of the data, as the model's own seed draws it.
    samples: str = "0-15"  # Puzzles of the split, such as 0-15 or 0,3,7.
    names: Words = ("*",)  # Names or patterns: n2_weights 'address_*' 'layers.3.*'.
    layers: str | None = None  # Layers, such as 0-3; default: all.
    sources: Words = ()
    """Source cells, such as r2c2 r2c5 (rows and columns count from 1), or nodes of a graph or
    sequence, such as n3 (from 0); default: all."""
    rounds: Count | None = None  # Rounds of a recurrent core; by default as trained.
    full: bool = False
    """Keep every number in float32, even where half precision is accurate enough."""
    dry_run: bool = False  # Print the size and write nothing.


@options
class Stats:
    """Temperatures, entropies, regions and reach of trained models, beside the paper's numbers."""

    checkpoints: Positional[Words] = ()
    """Checkpoint or run folders, shipped models, or handmade:3x3; seeds of a condition together."""
    data: str | None = None
    """Puzzle file or store; without it, the data that the model's own task generates."""
    split: Split | None = None
    """Part of the data, as each model's own seed draws it; without it, the test split of generated
    data, and of a file all that the model was not trained on."""
    limit: Count | None = None  # Puzzles per model at most; all of the split without it.
    detect: CountOrZero = 64  # Puzzles that the region detectors look at; 0: leave them out.
    rounds: Count | None = None  # Rounds of a recurrent core; default: as trained.
    batch_size: Annotated[Count, tyro.conf.arg(aliases=["-b"])] = 16  # Puzzles at a time.
    growth: bool = False
    """Instead, how far edges cover each example's own regions, by layer (jigsaw); with --out, also
    a picture of one cell's edges."""
    out: Path | None = None  # Folder for statistics.md, statistics.json and the plots by layer.


@options
class Figures:
    """Draw the paper's figures from recordings alone, as vector PDF and PNG."""

    recordings: Positional[Words] = ()
    """Files written by `graph-machine record`: of a GM, of a Transformer, or of both. A model by
    its name or folder is recorded on its first 16 test puzzles."""
    out: Path = Path("figures")  # Folder for the figures.
    only: Words = ()
    """Figures by name; all that the recordings can give without it (see --list)."""
    sample: CountOrZero | None = None  # Puzzle to show, where a figure shows one.
    samples: str | None = None  # Puzzles to show side by side, such as 0-7.
    source: str | None = None
    """Source cell, such as r2c2, or node, such as n3; by default the paper's cell, adapted to the
    board."""
    sources: Words = ()  # Source cells of figures that show several.
    heads: Words = ()
    """Heads or edges by shorthand: box=l0r2 row=l3e2 for regions, l3a1 l4r0 l1e2 elsewhere. r: a
    referral head and its new edge; e: an edge as it comes in, after sharpening."""
    all_cells: Words = ()
    """Contact sheets of every source cell for these heads (l1r2 l0a3 s0l1e2r), or 'all'."""
    rounds: Count | None = None
    """Rounds of a recurrent core, for models by name; default: as trained."""
    formats: tuple[Literal["pdf", "png", "svg"], ...] = ("pdf", "png")  # Files of each figure.
    list: bool = False  # List the figures and stop.


@options
class Explore:
    """Look inside a model in the browser, or write a page that needs no server."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT|REC")]
    """checkpoint or run folder, name of a shipped model, or a recording"""
    compare: str | None = None  # a second model or recording, side by side
    data: Path | None = None  # puzzle file or store to choose and draw puzzles from
    puzzle: Words = ()  # puzzles to begin with, as text
    rounds: Count | None = None  # rounds of a recurrent core; default: as trained
    host: str = "127.0.0.1"  # address to listen on; others than loopback are reachable from outside
    port: Annotated[int, Bounds(0, 65_535)] = 8765  # port to listen on; 0: any free one
    open: bool = True  # open the page in the browser
    export: Path | None = None  # write one self-contained page instead of serving
    force: bool = False  # replace the exported page if it is there already
    samples: Count = 1  # puzzles in the exported page, from the first one on


@options
class ListModels:
    """List the models that ship with the package; `models show NAME` prints a card, `models add
    RUN --name NAME` makes one of a run, `models render` writes the cards again."""

    json: bool = False  # print the facts as JSON, for programs


@options
class ShowModel:
    """The card of a model: budget, command, accuracy by difficulty, what was not shown."""

    name: Positional[str]
    json: bool = False  # print the facts as JSON, for programs


@options
class AddModel:
    """Make a model of a finished run: half-precision weights, tested again, with a card."""

    run: Positional[Path]  # folder of a finished run
    name: str  # name of the model, such as gm-4x4
    also: Annotated[Words, tyro.conf.arg(metavar="LABEL=FILE ...")] = ()
    """further puzzles to test on, such as 'real sample=sudoku.csv'"""
    note: Annotated[Words, tyro.conf.arg(metavar="TEXT ...")] = ()  # sentences for the card
    limit: Count | None = None  # only the first N puzzles of each set
    batch_size: Count = 256
    into: Path | None = None  # folder to write NAME into; default: the package's own
    replace: bool = False  # take the place of an older model of this name


@options
class RenderModels:
    """Write README.md of every shipped model (or of these folders) again from its card.json."""

    folders: Positional[tuple[Path, ...]] = ()


# The options of each command; where there is a `NAME list`, NAME has subcommands.
KINDS: dict[str, type] = {
    **{kind.__name__.lower(): kind for kind in (Demo, Conditions, Train, Evaluate, Solve, Sweep)},
    **{kind.__name__.lower(): kind for kind in (Doctor, Bench, Stats, Figures, Explore)},
    "report": ReportOptions,
    "record": RecordOptions,
    "models list": ListModels,
    "models show": ShowModel,
    "models add": AddModel,
    "models render": RenderModels,
}


def read_command(name: str, argv: Sequence[str]) -> Any:
    """The options of a command, of its subcommand where it has some; `list` is the usual one."""
    prog = name
    if name == "sweep":  # `--ray` may stand alone: Ray chooses the cluster then
        after = [*argv[1:], "--"]
        alone = [a == "--ray" and b.startswith("--") for a, b in zip(argv, after, strict=True)]
        argv = [part for a, ray in zip(argv, alone) for part in ([a, RAY] if ray else [a])]
    if f"{name} list" in KINDS:
        words = [word for word in argv[:1] if not word.startswith("-")]
        argv = argv[len(words) :]
        prog, name = " ".join([name, *words]), " ".join([name, *(words or ["list"])])
        if name not in KINDS:
            command, word = name.split(" ", 1)
            known = [one.partition(" ")[2] for one in KINDS if one.startswith(f"{command} ")]
            raise ConfigError(
                f"'{word}' is not a command of 'graph-machine {command}'. Known: "
                f"{', '.join(known)}; 'graph-machine {command} show NAME' shows one of the models."
            )
    kind = KINDS[name]
    hints = get_type_hints(kind)
    lists = {f"--{name.replace('_', '-')}" for name, hint in hints.items() if hint == Words}
    words, prog = joined(argv, lists), f"graph-machine {prog}"
    return parse(lambda: tyro.cli(kind, args=words, prog=prog, config=STYLE), prog)


def read_subcommand(kinds: dict[str, Callable[..., Any]], argv: Sequence[str], prog: str) -> Any:
    """The options of the subcommand that comes first in `argv`."""
    prog, cli = f"graph-machine {prog}", tyro.extras.subcommand_cli_from_dict
    return parse(lambda: cli(kinds, args=list(argv), prog=prog, config=STYLE), prog)


def parse(call: Callable[[], T], prog: str) -> T:
    """What tyro parses, checked; tyro prints errors as a box and exits, we raise one line."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = call()
    except SystemExit as left:
        if not left.code:  # --help
            raise
        raise ConfigError(f"{as_line(printed.getvalue())} See '{prog} --help'.") from None
    hints = get_type_hints(type(args), include_extras=True)
    for item in fields(args):  # pyrefly: ignore[bad-argument-type]
        value = getattr(args, item.name)
        for rule in rules(hints[item.name]) if value is not None else ():
            rule.check(f"--{item.name.replace('_', '-')}", value)
    return args


def rules(hint: Any) -> list[Bounds | Endings]:
    """The rules in an annotation, also in those of a union such as `Count | None`."""
    found = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Bounds | Endings)]
    return found + [one for part in get_args(hint) for one in rules(part)]


def as_line(box: str) -> str:
    """The first part of an error box of tyro, and the option that it suggests.

    >>> as_line("╭─ Unrecognized ─╮\\n│ Unrecognized options: --x │\\n╰──╯")
    'Unrecognized options: --x.'
    """
    rows = [row.strip("│╭╮╰╯|+ ") for row in box.splitlines()][1:]
    drawn = dropwhile(lambda row: not row.strip("─-"), rows)
    text = " ".join(takewhile(lambda row: row.strip("─-"), drawn))
    value = re.match(
        r"Error parsing (\S+): no type matching (.+?) could .*? from \['(.*?)'\]", text
    )
    if value:
        text = f"{value[1]} takes {value[2]}, got '{value[3]}'"
    nearest = re.search(r"Perhaps you meant:\s+(--[\w-]+)", "\n".join(rows))
    hint = f" Did you mean {nearest[1]}?" if nearest else ""
    return f"{text.rstrip('.')}.{hint}"


def joined(argv: Sequence[str], lists: Collection[str]) -> list[str]:
    """Options that take several words, each only once: argparse would keep the last of them.

    >>> joined(["--set", "a=1", "--seed", "2", "--set", "b=3"], {"--set"})
    ['--set', 'a=1', 'b=3', '--seed', '2']
    """
    words: list[str] = []
    more: dict[str, list[str]] = {}
    into = words
    for word in argv:
        name, equals, value = word.partition("=")
        if name in lists:
            words += [] if name in more else [name]
            into = more.setdefault(name, [])
            into += [value] if equals else []
        else:
            into = words if word.startswith("-") else into
            into.append(word)
    return [part for word in words for part in [word, *more.get(word, [])]]
