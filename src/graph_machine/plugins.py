"""Your own conditions and tasks: Python files or modules that register them when imported.

`--import NAME` names one on the command line; packages name theirs as entry points of the group
`graph_machine`. A run remembers what it was started with. What a run remembers is imported again
only if somebody on this machine has named it with --import before: a folder from elsewhere cannot
make this program run code.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from graph_machine.errors import ConfigError, GraphMachineError
from graph_machine.files import cache_folder, write_json

GROUP = "graph_machine"
_loaded: list[str] = []


def loaded() -> list[str]:
    """What was imported by name, as it was named; files with their whole path."""
    return list(_loaded)


def load(names: Sequence[str]) -> None:
    """Import what the user has named, and remember that it was the user who did."""
    for name in names:
        whole = str(Path(name).resolve()) if _is_file(name) else name
        _import(whole)
        if whole not in _trusted():
            # Without a cache folder a run can still be made; it has to be named again later.
            with suppress(OSError):
                write_json(_trust_file(), sorted({*_trusted(), whole}))


def load_remembered(names: object, where: object) -> None:
    """Import what a run was started with, if it is in use on this machine anyway."""
    if not isinstance(names, list):
        return
    for name in map(str, names):
        if name in _loaded:
            continue
        if name not in _trusted():
            raise ConfigError(
                f"This run was made with --import {name}, which was never named on this machine. "
                f"If you trust that code, name it: --import {name} (or where it is now): {where}"
            )
        _import(name)


def load_installed() -> None:
    """Import the plug-ins of installed packages."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except GraphMachineError:
            raise
        except Exception as error:
            raise ConfigError(f"The plug-in {entry.value} could not be loaded: {error}") from error


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _import(name: str) -> None:
    if name in _loaded:
        return
    try:
        if _is_file(name):
            # A name of its own: two files of the same name are two modules.
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            module_name = f"graph_machine_import_{Path(name).stem}_{digest}"
            spec = importlib.util.spec_from_file_location(module_name, name)
            if spec is None or spec.loader is None or not Path(name).is_file():
                raise ConfigError(f"--import: there is no such Python file: {name}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            importlib.import_module(name)
    except GraphMachineError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--import {name}: there is no module '{error.name}'; give a file (NAME.py), or "
            "install the package."
        ) from None
    except Exception as error:
        kind = type(error).__name__
        raise ConfigError(
            f"--import {name}: it could not be imported ({kind}: {error})."
        ) from error
    _loaded.append(name)


def _trust_file() -> Path:
    return cache_folder() / "imports.json"


def _trusted() -> list[str]:
    try:
        names = json.loads(_trust_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []
