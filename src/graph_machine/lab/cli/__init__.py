"""The `graph-machine` command: finds the subcommand's file, parses, prints errors as one line.

Each command is one file of this package with a function `main`; `_options.py` has the options of
all of them. A command's file is imported when its options have been read, so that
`graph-machine COMMAND --help` does not wait for torch.
"""

import atexit
import gc
import importlib
import os
import re
import sys
from importlib import metadata

from graph_machine import errors
from graph_machine.errors import ConfigError, GraphMachineError, MissingExtraError

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

# The extras that a command may need; if one is missing, all missing ones are named at once.
EXTRAS: dict[str, tuple[str, ...]] = {
    "demo": ("data", "analysis"),
    "explore": ("explorer", "data"),
    **dict.fromkeys(("report", "figures", "stats"), ("analysis", "data")),
    **dict.fromkeys(("data", "train", "sweep", "evaluate", "solve", "record"), ("data",)),
}


def usage() -> str:
    lines = ["usage: graph-machine COMMAND [options]", "", "commands:"]
    lines += [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    lines += ["", "options of every command:"]
    lines += ["  --import X   load your own conditions and tasks from a file X.py or a module X"]
    lines += ["", "'graph-machine COMMAND --help' lists the options of a command."]
    return "\n".join(lines)


def run(argv: list[str]) -> int:
    """Run one command line; user errors are raised, not printed."""
    words, argv, imports = iter(argv), list[str](), list[str]()
    for word in words:
        if word == "--import" or word.startswith("--import="):
            imports.append(next(words, "") if word == "--import" else word.partition("=")[2])
            if not imports[-1] or imports[-1].startswith("-"):
                raise ConfigError("--import takes a Python file or the name of a module.")
        else:
            argv.append(word)
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] == "--version":
        from graph_machine import __version__

        print(f"graph-machine {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        hint = errors.did_you_mean(name, COMMANDS)
        raise ConfigError(f"Unknown command '{name}'.{hint} List all with 'graph-machine --help'.")
    from graph_machine.lab import plugins
    from graph_machine.lab.cli._options import read_command

    plugins.load_installed()
    plugins.load(imports)
    try:
        # `data` has subcommands with options of its own.
        args = rest if name == "data" else read_command(name, rest)
        gc.disable()  # it would find nothing among a million imported objects
        command = importlib.import_module(f"graph_machine.lab.cli.{name}")
        gc.enable()
        return int(command.main(args) or 0)
    except MissingExtraError as error:
        missing = [extra for extra in EXTRAS.get(name, ()) if is_missing(extra)]
        if len(missing) < 2:
            raise
        raise ConfigError(
            f"{str(error).partition(':')[0]}. 'graph-machine {name}' uses several extras: "
            f"pip install 'graph-machine[{','.join(missing)}]'"
        ) from None
    finally:
        gc.enable()


def is_missing(extra: str) -> bool:
    """Whether a package of one of our extras is not installed, by the package's own metadata."""
    for line in metadata.requires("graph-machine") or ():
        package, named = re.split(r"[^\w.-]", line, maxsplit=1)[0], f'extra == "{extra}"'
        try:
            if named in line.replace("'", '"'):
                metadata.version(package)
        except metadata.PackageNotFoundError:
            return True
    return False


def main() -> None:
    """Entry point of the console script."""
    # Before torch is loaded. A thread that spins while it waits for work takes a core from the
    # thread that has it, where cores are shared: two threads were three times as slow as one.
    # Ten microseconds of it do no harm, and often the next work comes sooner than that.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    atexit.register(gc.freeze)  # at its end Python would look through all that was imported
    code, line = 2, None
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except GraphMachineError as error:
        line = str(error)
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error. Python would complain
        # again when it flushes stdout at exit, so give it a stdout that takes everything.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        line = error.strerror or str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            line = "Expected a folder, but there is a file of this name; choose another name"
        line += f": {error.filename}" if error.filename else ""
    except Exception as error:
        from graph_machine.lab.plugins import describe_own_error

        line = describe_own_error(error)
        if line is None:
            raise  # a mistake of ours: with all that helps to find it
        line = errors.one_line(line)
    if line is not None:
        print(f"graph-machine: {line}", file=sys.stderr)
    sys.exit(code)
