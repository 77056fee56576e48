"""The `graph-machine` command: finds the subcommand's file, parses, prints errors as one line.

Each subcommand is one file of this package with a function `main(argv) -> int | None`; only the
file that is asked for is imported, so that `graph-machine --help` does not wait for torch.
"""

import importlib
import os
import sys

from graph_machine.errors import ConfigError, GraphMachineError, did_you_mean, one_line

# name -> one line of help. The file is cli/<name>.py.
COMMANDS: dict[str, str] = {
    "demo": "generate puzzles, train a small GM and a Transformer, compare them",
    "conditions": "list the paper's conditions, or show one of them",
    "data": "prepare, inspect, generate, rate and draw Sudoku data",
    "train": "train one condition",
    "evaluate": "accuracy of a trained model on a data file",
    "solve": "solve puzzles with a trained model",
    "sweep": "train many conditions and seeds",
    "report": "the paper's tables and curves from run folders",
    "doctor": "device, kernels and settings here, and what has never been run",
    "bench": "benchmarks against the reference and the arithmetic floor",
    "record": "record what happens inside a model",
    "stats": "the paper's statistics tables and region detectors",
    "figures": "the paper's figures from recordings",
    "explore": "look inside a model in the browser",
    "models": "list the models that ship with the package",
}


def available() -> dict[str, str]:
    """The commands whose file exists."""
    here = os.path.dirname(__file__)
    return {n: h for n, h in COMMANDS.items() if os.path.exists(os.path.join(here, f"{n}.py"))}


def usage() -> str:
    lines = ["usage: graph-machine COMMAND [options]", "", "commands:"]
    lines += [f"  {name:<12} {text}" for name, text in available().items()]
    lines += ["", "options of every command:"]
    lines += ["  --import X   load your own conditions and tasks from a file X.py or a module X"]
    lines += ["", "'graph-machine COMMAND --help' lists the options of a command."]
    return "\n".join(lines)


def split_imports(argv: list[str]) -> tuple[list[str], list[str]]:
    """The command line without its `--import NAME`, and these names."""
    rest: list[str] = []
    found: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--import" or word.startswith("--import="):
            name = next(words, "") if word == "--import" else word.partition("=")[2]
            if not name or name.startswith("-"):
                raise ConfigError("--import takes a Python file or the name of a module.")
            found.append(name)
        else:
            rest.append(word)
    return rest, found


def run(argv: list[str]) -> int:
    """Run one command line; user errors are raised, not printed."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] == "--version":
        from graph_machine import __version__

        print(f"graph-machine {__version__}")
        return 0
    argv, imports = split_imports(argv)
    if not argv:
        print(usage())
        return 0
    name, rest = argv[0], argv[1:]
    if name not in available():
        hint = did_you_mean(name, available())
        raise ConfigError(f"Unknown command '{name}'.{hint} List all with 'graph-machine --help'.")
    from graph_machine import plugins

    plugins.load_installed()
    plugins.load(imports)
    module = importlib.import_module(f"graph_machine.cli.{name}")
    return int(module.main(rest) or 0)


def main() -> None:
    """Entry point of the console script."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except GraphMachineError as error:
        print(f"graph-machine: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("graph-machine: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error. Python would complain
        # again when it flushes stdout at exit, so give it a stdout that takes everything.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"graph-machine: {error.strerror or error}{where}", file=sys.stderr)
        code = 2
    except Exception as error:
        from graph_machine.plugins import told_of_own_code

        told = told_of_own_code(error)
        if told is None:
            raise  # a mistake of ours: with all that helps to find it
        print(f"graph-machine: {one_line(told)}", file=sys.stderr)
        code = 2
    sys.exit(code)
