"""Options of every command: help that does not wait, and values that are checked at the door."""

import re
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab.cli import COMMANDS, _options, data, run

CLASSES = [*_options.KINDS.values(), *data.WORK]
HELP = [name.split() for name in _options.KINDS]
HELP += [["models"], *(["data", kind.__name__.lower()] for kind in data.WORK)]


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from graph_machine.lab.cli import run\n"
        f"for words in {HELP}:\n"
        "    try: run([*words, '--help'])\n"
        "    except SystemExit as left: assert left.code == 0, words\n"
        "    heavy = {'torch', 'numpy', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'{words} imports {sorted(heavy)}')\n"
        "for words in (['models'], ['conditions']):\n"
        "    run(words)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{words} imports torch')\n"
        "import graph_machine.lab.reports, graph_machine.lab.training\n"
        "import graph_machine.lab.cli.solve\n"
        "assert not {'pandas', 'scipy'} & set(sys.modules)\n"
        "from graph_machine.lab.config import TASK_CONFIGS\n"
        "print('tasks:', *TASK_CONFIGS)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: graph-machine") == len(HELP)
    # What is not given is told in words, and a word by its name.
    for bad in ("None", "default: )", "[STR"):
        assert bad not in done.stdout.partition("\nname  ")[0]
    assert "usage: graph-machine solve [-h] [OPTIONS] MODEL [PUZZLE]" in done.stdout
    bare = r"│ (--[\w-]+(?:, --\S+)?) *(?:\{.*\}|[A-Z]+)? *│\n│ +\(default"  # no help text
    assert re.findall(bare, done.stdout) == []
    text = " ".join(done.stdout.replace("│", "").split())
    listed = re.findall(r"what is learned: (.*?), or your own", text)
    tasks = set(done.stdout.partition("tasks: ")[2].split())  # without those of other tests
    assert [set(each.split(", ")) for each in listed] == [tasks] * 2


def parts(hint: Any) -> set[Any]:
    """The plain types in an annotation."""
    inner = (hint.__origin__,) if hasattr(hint, "__metadata__") else getattr(hint, "__args__", ())
    return {hint}.union(*map(parts, inner)) if inner else {hint}


def test_every_number_has_bounds() -> None:
    assert {name.split()[0] for name in _options.KINDS} | {"data"} == set(COMMANDS)
    free = [
        f"{one.__module__}.{name}"
        for one in CLASSES
        for name, hint in get_type_hints(one, include_extras=True).items()
        if {int, float} & parts(hint) and not _options.rules(hint)
    ]
    assert free == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("evaluate m --limit -1", "--limit 1 -1"),
        ("evaluate m --batch-size 0", "--batch-size 1 0"),
        ("evaluate m --until-stable 0", "--until-stable"),
        ("evaluate m --rounds 0", "--rounds 4,8,16 '0'"),
        ("evaluate m --plot a.docx", "--plot .png .svg 'a.docx'"),
        ("solve m p --rounds 0", "--rounds 1 0"),
        ("data rate 1.. --attempts 0", "--attempts"),
        ("data generate --count 0 --out a.csv", "--count"),
        ("data draw a.csv --row -1", "--row 0 -1"),
        ("train gm --seed -1", "--seed 0 -1"),
        ("demo --seconds -1", "--seconds 0 -1.0"),
        ("demo --seconds nan", "--seconds nan"),
        ("report --out x.docx", "--out .md .csv --format"),
        ("report --out x.csv --format md", "--out x.csv --format md"),
        ("report --curves x.docx", "--curves .png 'x.docx'"),
        ("sweep --all --ray --gpus -0.5", "--gpus 0 -0.5"),
        ("explore m --port 70000", "--port 65,535 70000"),
        ("stats m -b 0", "--batch-size 1 0"),
        ("record m --rounds 0", "--rounds 1 0"),
        ("figures m --sample -1", "--sample 0 -1"),
        ("models add r --name n --limit 0", "--limit 1 0"),
        ("models show2", "'show2' show add"),
        ("bench --threads 0", "--threads 1 0"),
        ("evaluate m --limit abc", "--limit INT 'abc'"),
        ("evaluate m --limt 3", "--limt --limit"),
        ("evaluate", "MODEL"),
        ("train gm --progress nope", "'nope' 'plain'"),
        ("data generate --count 3", "--out"),
        ("data generat", "generat"),
        ("data", "prepare"),
        ("data generate --count 3 --out g.txt", ".csv g.txt"),
    ],
)
def test_wrong_values_and_options_are_one_line(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        run(line.split())
    text = str(error.value)
    assert all(word in text for word in words.split()), text
    assert "\n" not in text
    assert "│" not in text


@pytest.mark.parametrize(
    "line",
    ["gm --set a=1 b=2 --seed 3", "gm --set a=1 --seed 3 --set b=2", "gm --set=a=1 --set=b=2"],
)
def test_an_option_with_several_words_may_be_given_several_times(line: str) -> None:
    args = _options.read_command("train", line.split())
    assert args.set == ("a=1", "b=2")
    assert args.condition == "gm"
