"""Your own conditions and tasks: Python files or modules that register them when imported.

`--import NAME` names one on the command line; packages name theirs as entry points of the group
`graph_machine`. A run remembers what it was started with. What a run remembers is imported again
only if it was named on this machine with --import before: a folder from elsewhere cannot
make this program run code.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from graph_machine.errors import ConfigError, GraphMachineError, NameTakenError
from graph_machine.files import cache_folder, is_ours, write_json
from graph_machine.registry import connect

GROUP = "graph_machine"
_loaded: list[str] = []
_named: list[str] = []  # of these, what the user has named in this process
_looked_for: set[str] = set()  # groups of entry points
_installed: set[str] = set()  # entry points
_importing: list[str] = []  # what is being imported now, the innermost last


def loaded() -> list[str]:
    """The names that were imported; files with their whole path."""
    return list(_loaded)


def importing() -> str | None:
    """The name that is being imported now, which owns whatever registers itself meanwhile."""
    return _importing[-1] if _importing else None


@contextmanager
def _registering(owner: str) -> Iterator[None]:
    _importing.append(owner)
    try:
        yield
    finally:
        _importing.pop()


def load(names: Sequence[str]) -> None:
    """Import the names that the user has given, and remember that the user gave them."""
    for name in map(_full_name, names):
        # A console script does not look into the current folder, as `python -m` does. What a run
        # remembers is not looked for there: the folder may have come with the run.
        _look_into(Path(name).parent if _is_file(name) else Path.cwd())
        try:
            _import(name)
        except NameTakenError as error:
            raise ConfigError(f"--import {name}: {error} Choose another name.") from None
        _named.append(name)
        _remember(name)


def load_remembered(names: object, where: object) -> None:
    """Import the names that a run was started with, if this machine trusts them."""
    load_installed()
    for name in map(str, names if isinstance(names, list) else ()):
        missing = _is_file(name) and not Path(name).is_file()
        # The user has named a file, so this one may have moved there: looking up the task
        # will show.
        if name in _loaded or (missing and any(map(_is_file, _named))):
            continue
        why, known = None, _trusted().get(name)
        if known is None:
            why = "was never named on this machine"
        elif missing:
            why = "is not there any more"
        elif not _unchanged(name, known):
            why = "has changed since it was named on this machine"
        if why is not None:
            raise ConfigError(
                f"This run was made with --import {name}, which {why}. If you trust that code, "
                f"name it: --import {name} (or where it is now): {where}"
            )
        if _is_file(name):
            _look_into(Path(name).parent)
        try:
            _import(name)
        except ConfigError as error:
            # What the user has named or installed wins: this is an older copy of it.
            if not isinstance(error, NameTakenError) or error.owner not in (*_named, *_installed):
                said = str(error).removeprefix(f"--import {name}: ")
                raise ConfigError(f"--import {name}: {said} This run needs it: {where}") from error


def load_installed() -> None:
    """Import the plug-ins of installed packages, once; one that fails is reported on stderr."""
    if GROUP in _looked_for:
        return
    _looked_for.add(GROUP)  # first: a plug-in may look something up while it is imported
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            _installed.add(entry.value)
            with _registering(entry.value):
                entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = str(error) if isinstance(error, GraphMachineError) else _described(error)
            # It need not be what this command is about: the command continues without it.
            line = f"graph-machine: the plug-in {entry.value} could not be loaded: {why}"
            print(line.replace("\n", " "), file=sys.stderr)


def describe_own_error(error: BaseException) -> str | None:
    """An error that came up in the user's own code, as one line with its place; None: elsewhere."""
    folders = [folder for name in (*_loaded, *_installed) for folder in _folders(name)]
    place = None
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        # Packages in an environment beside the user's file are not the user's.
        if any(
            file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts
            for folder in folders
        ):
            place = f"{file.name}, line {frame.lineno}, in {frame.name}"
    return None if place is None else f"{place}: {_described(error)}"


def _folders(name: str) -> list[Path]:
    """Where code that was imported by name lies, with its neighbours or the rest of its package."""
    if _is_file(name):
        return [Path(name).parent]
    package = sys.modules.get(name.partition(":")[0].partition(".")[0])
    inside = [Path(folder) for folder in getattr(package, "__path__", ())]
    file = getattr(package, "__file__", None)
    return inside or ([] if file is None else [Path(file)])


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _full_name(name: str) -> str:
    """A file with its whole path; also for a module NAME of which only ./NAME.py is known."""
    if not _is_file(name):
        beside = Path(f"{name}.py")
        if "." in name or not beside.is_file() or importlib.util.find_spec(name) is not None:
            return name
        name = str(beside)
    return str(Path(name).resolve())


def _look_into(folder: Path) -> None:
    """Let imported files find their neighbours; last, so that these hide no other module."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _described(error: BaseException) -> str:
    """An error as text; the user's own class may fail even at that."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _import(name: str) -> None:
    if name in _loaded:
        return
    if not _is_file(name) and not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"--import takes a Python file (NAME.py) or the name of a module, got '{name}'."
        )
    try:
        with _registering(name):
            if _is_file(name):
                _import_file(name)
            else:
                importlib.import_module(name)
    except (GraphMachineError, KeyboardInterrupt):
        raise
    except BaseException as error:
        why = f"it could not be imported ({_described(error)})."
        if isinstance(error, ModuleNotFoundError):
            why = (
                f"there is no module '{error.name}'; give a file (NAME.py), or install the package."
            )
        elif isinstance(error, SystemExit):
            why = "it ends the program (sys.exit) when it is imported; put that behind "
            why += "if __name__ == '__main__'."
        raise ConfigError(f"--import {name}: {why}") from error
    _loaded.append(name)


def _import_file(name: str) -> None:
    # A name of its own: two files of the same name are two modules.
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    module_name = f"graph_machine_import_{Path(name).stem}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, name)
    if spec is None or spec.loader is None or not Path(name).is_file():
        raise ConfigError(f"--import: there is no such Python file: {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)


def _trust_file() -> Path:
    return cache_folder() / "imports.json"


def _trusted() -> dict[str, dict[str, str]]:
    """Name -> file and digest, of the names given on this machine.

    The list makes this program run code: one that others may have written counts as empty.
    """
    path = _trust_file()
    try:
        if not (is_ours(path) and is_ours(path.parent)):
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(name: str) -> None:
    found = name if _is_file(name) else getattr(sys.modules.get(name), "__file__", None)
    if found is None:
        return
    file = Path(found)
    entry = {"file": str(file.resolve()), "sha256": _digest(file)}
    known = _trusted()
    if known.get(name) != entry:
        # Without a cache folder a run can still be made; it has to be named again later.
        with suppress(OSError):
            write_json(_trust_file(), dict(sorted((known | {name: entry}).items())))


def _unchanged(name: str, known: dict[str, str]) -> bool:
    """Whether the code to import is the code that was named; this executes nothing."""
    file = Path(known.get("file", ""))
    if _is_file(name):
        return file == Path(name).resolve() and _digest(file) == known.get("sha256")
    spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None:
        return True  # it is gone, which the import reports
    places = [Path(each).resolve() for each in spec.submodule_search_locations or ()]
    if spec.origin is not None:
        places.append(Path(spec.origin).resolve())
    inside = any(file == place or place in file.parents for place in places)
    return inside and file.is_file() and _digest(file) == known.get("sha256")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


connect(load_installed, importing)
