"""Options of every command: help that does not wait, and values that are checked at the door."""

import dataclasses
import importlib
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab.cli import COMMANDS, _options, data, models, run, train

HELP = [[name] for name in COMMANDS]
HELP += [["data", kind.__name__.lower()] for kind in data.WORK]
HELP += [["models", name] for name in models.COMMANDS]


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from graph_machine.lab.cli import run\n"
        f"for words in {HELP}:\n"
        "    try: run([*words, '--help'])\n"
        "    except SystemExit as left: assert left.code == 0, words\n"
        "    heavy = {'torch', 'numpy', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'{words} imports {sorted(heavy)}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: graph-machine") == len(HELP)
    # What is not given is told in words, and a word by its name.
    for bad in ("None", "default: )", "[STR"):
        assert bad not in done.stdout
    assert "usage: graph-machine solve [-h] [OPTIONS] MODEL [PUZZLE]" in done.stdout


def option_classes() -> list[type]:
    modules = [importlib.import_module(f"graph_machine.lab.cli.{name}") for name in COMMANDS]
    found = [value for module in modules for value in vars(module).values()]
    ours = [one for one in found if isinstance(one, type) and dataclasses.is_dataclass(one)]
    return [one for one in ours if one.__module__ != _options.__name__]


def parts(hint: Any) -> set[Any]:
    """The plain types in an annotation."""
    inner = (hint.__origin__,) if hasattr(hint, "__metadata__") else getattr(hint, "__args__", ())
    return {hint}.union(*map(parts, inner)) if inner else {hint}


def test_every_number_has_bounds() -> None:
    classes = option_classes()
    assert len(classes) >= len(COMMANDS)
    free = [
        f"{one.__module__}.{name}"
        for one in classes
        for name, hint in get_type_hints(one, include_extras=True).items()
        if {int, float} & parts(hint) and not _options.rules(hint)
    ]
    assert free == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("evaluate m --limit -1", "--limit should be at least 1, got -1."),
        ("evaluate m --limit 0", "--limit should be at least 1, got 0."),
        ("evaluate m --batch-size 0", "--batch-size should be at least 1, got 0."),
        ("evaluate m --batch-size -5", "--batch-size should be at least 1, got -5."),
        ("evaluate m --until-stable 0", "--until-stable should be at least 1, got 0."),
        ("evaluate m --rounds 0", "--rounds takes numbers from 1, such as 16 or 4,8,16, got '0'."),
        ("evaluate m --plot a.docx", "--plot should end in .png or .svg, got 'a.docx'."),
        ("solve m p --limit -1", "--limit should be at least 1, got -1."),
        ("solve m p --rounds 0", "--rounds takes one number from 1, such as 16, got '0'."),
        ("data rate 1.. --attempts 0", "--attempts should be at least 1, got 0."),
        ("data rate 1.. --workers -1", "--workers should be at least 1, got -1."),
        ("data generate --count 0 --out a.csv", "--count should be at least 1, got 0."),
        ("data draw a.csv --row -1", "--row should be at least 0, got -1."),
        ("train gm --seed -1", "--seed should be from 0 to 4,294,967,295, got -1."),
        ("train gm --steps 0", "--steps should be at least 1, got 0."),
        ("demo --seconds -1", "--seconds should be more than 0, got -1.0."),
        ("demo --seconds nan", "--seconds should be a number, got nan."),
        ("report --out x.docx", "--out should end in .md, .html, .htm, .json, .csv, or say --form"),
        ("report --out x.csv --format md", "--out x.csv is not --format md; leave one out."),
        ("report --curves x.docx", "--curves should end in .png or .svg, got 'x.docx'."),
        ("sweep --all --workers 0", "--workers should be at least 1, got 0."),
        ("sweep --all --ray --gpus -0.5", "--gpus should be at least 0, got -0.5."),
        ("explore m --port 70000", "--port should be from 0 to 65,535, got 70000."),
        ("explore m --samples 0", "--samples should be at least 1, got 0."),
        ("stats m --limit 0", "--limit should be at least 1, got 0."),
        ("stats m -b 0", "--batch-size should be at least 1, got 0."),
        ("record m --rounds 0", "--rounds takes one number from 1, such as 16, got '0'."),
        ("figures m --sample -1", "--sample should be at least 0, got -1."),
        ("models add r --name n --limit 0", "--limit should be at least 1, got 0."),
        ("bench --threads 0", "--threads should be at least 1, got 0."),
        ("bench --rounds 0", "--rounds should be at least 1, got 0."),
    ],
)
def test_values_are_checked_at_the_door(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        run(line.split())
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("evaluate m --limit abc", ("--limit", "INT", "'abc'")),
        ("evaluate m --limt 3", ("--limt", "Did you mean --limit?")),
        ("evaluate", ("MODEL",)),
        ("train gm --progress nope", ("'nope'", "'plain'")),
        ("data generate --count 3", ("--out",)),
        ("data generat", ("generat",)),
        ("data", ("prepare",)),
        ("data generate --count 3 --out g.txt", (".csv", "g.txt")),
    ],
)
def test_wrong_options_are_one_line(line: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        run(line.split())
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert "│" not in text


def test_a_number_has_an_upper_bound_too() -> None:
    assert str(_options.Bounds(high=3)) == "at most 3"
    with pytest.raises(ConfigError, match="at most 3"):
        _options.Bounds(high=3).check("--x", 4)


@pytest.mark.parametrize(
    "line",
    ["gm --set a=1 b=2 --seed 3", "gm --set a=1 --seed 3 --set b=2", "gm --set=a=1 --set=b=2"],
)
def test_an_option_with_several_words_may_be_given_several_times(line: str) -> None:
    args = _options.read(train.Args, line.split(), "train")
    assert args.settings == ("a=1", "b=2")
    assert args.condition == "gm"
