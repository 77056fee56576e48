"""The rooms and their one-way order: the map is the table of ARCHITECTURE.md, read from there."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import graph_machine

ROOT = Path(graph_machine.__file__).parent
PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
# For every room.
TOOLS = {"errors", "registry", "files", "machine"}
LAB_TOOLS = {"lab.plugins", "lab.run_files"}  # for every room of the lab
OWN_COMMANDS = {"lab/cli/data.py"}  # of Sudoku
LIGHT = {"errors", "registry"}  # for config, which must not wait for torch


@cache
def allowed() -> dict[str, set[str]]:
    """Room -> the rooms that its row on the page names."""
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.M)
    return {room: set(re.findall(r"`([\w.]+)`", others)) for room, others in rows}


def room_of(path: Path) -> str:
    """`ops`, or `lab.tasks`: rooms of the lab are named with their wing."""
    return room_named(path.relative_to(ROOT).with_suffix("").parts)


def room_named(parts: tuple[str, ...]) -> str:
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node, without what only the type checker imports."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for other in child.orelse:
                yield from walk(other)
        else:
            yield from walk(child)


@cache
def imported_modules(path: Path) -> list[str]:
    """Absolute names of all a file imports, also inside functions."""
    found: list[str] = []
    package = ("graph_machine", *path.relative_to(ROOT).parent.parts)
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*parts, *([node.module] if node.module else [])))
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_imports() -> dict[str, dict[str, str]]:
    """Room -> imported room -> a file that imports it."""
    rooms: dict[str, dict[str, str]] = {}
    for path in sources():
        room = room_of(path)
        if room in ("__init__", "lab.__init__"):
            continue
        found = rooms.setdefault(room, {})
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] != "graph_machine" or len(parts) == 1:
                continue
            other = room_named(tuple(parts[1:]))
            place = ROOT / other.replace(".", "/")
            is_room = other != "lab" and (place.is_dir() or place.with_suffix(".py").exists())
            if is_room and other != room:
                found.setdefault(other, str(path.relative_to(ROOT)))
    return rooms


def drawn(rooms: dict[str, dict[str, str]]) -> str:
    lines = ["The rooms import:"]
    for room, others in rooms.items():
        lines.append(f"  {room:<12} {', '.join(sorted(others)) or '-'}")
    return "\n".join(lines)


def test_the_page_and_the_code_show_the_same_map() -> None:
    tools = TOOLS | LAB_TOOLS
    rooms = {r: o for r, o in room_imports().items() if r not in tools | {"__main__"}}
    assert set(rooms) == set(allowed()), "rooms without a row, or rows without a room"
    wrong = [
        f"{where} imports {other}, which the row of '{room}' on the page does not name"
        for room, others in rooms.items()
        for other, where in others.items()
        if other not in (tools if room.startswith("lab.") else TOOLS) | allowed()[room]
    ]
    wrong += [
        f"the row of '{room}' names {other}, which it does not import"
        for room, others in allowed().items()
        for other in sorted(others - set(rooms[room]))
    ]
    assert not wrong, "\n".join([*wrong, drawn(rooms)])


def test_tools_use_no_room_and_config_only_light_ones() -> None:
    rooms = room_imports()
    for tool in TOOLS:
        assert set(rooms[tool]) <= TOOLS, f"{tool} imports {sorted(rooms[tool])}"
    for tool in LAB_TOOLS:
        assert set(rooms[tool]) <= TOOLS | LAB_TOOLS, f"{tool} imports {sorted(rooms[tool])}"
    assert set(rooms["config"]) <= LIGHT
    assert set(rooms["lab.config"]) <= LIGHT | {"config"}


def test_no_cycles_of_rooms_and_no_lazy_import_that_hides_one_of_files() -> None:
    TopologicalSorter(allowed()).prepare()  # raises CycleError, which names the rooms
    names = {
        path: "graph_machine." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sources()
    }
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    needs = {
        # A file may name its own package, which names its files in turn.
        name: {
            other
            for other in imported_modules(path)
            if other in names.values() and not f"{name}.".startswith(f"{other}.")
        }
        for path, name in names.items()
    }
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the files


def test_generic_code_knows_no_task_by_name() -> None:
    """Tasks are found through their registry; only a command of a task's own imports it."""
    own = {path.parent.name for path in (ROOT / "lab" / "tasks").glob("*/__init__.py")}
    assert own == {"sudoku", "jigsaw", "maze", "algorithms"}
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if room_of(path) == "lab.tasks" or place in OWN_COMMANDS:
            continue
        named = {
            name
            for name in imported_modules(path)
            if name.split(".")[:3] == ["graph_machine", "lab", "tasks"]
            and set(name.split(".")) & own
        }
        assert not named, f"{place} imports {sorted(named)}"


def test_run_files_are_read_in_one_place() -> None:
    """Whoever wants to know something of a run asks `run_files`."""
    for path in sources():
        if path.name != "run_files.py":
            assert '"run.json"' not in path.read_text(encoding="utf-8"), path


def test_figures_read_records_only() -> None:
    """What they draw is in a record's file: no model, no task, no tensor of torch."""
    for path in sorted((ROOT / "lab" / "analysis" / "figures").rglob("*.py")):
        names = set(imported_modules(path))
        assert not {name for name in names if name.split(".")[0] == "torch"}, path
        ours = {name for name in names if name.startswith("graph_machine.")}
        rooms = {room_named(tuple(name.split(".")[1:])) for name in ours} - {"lab"}
        assert rooms <= TOOLS | {"lab.analysis", "lab.records"}, path


def test_nothing_in_src_imports_tests_or_benchmarks() -> None:
    outside = {"tests", "benchmarks", "support", "tolerances", "conftest"}
    for path in sources():
        tops = {name.split(".")[0] for name in imported_modules(path)}
        assert not tops & outside, path


def test_config_and_the_command_list_do_not_wait_for_torch() -> None:
    code = (
        "import sys, graph_machine, graph_machine.config, graph_machine.lab.cli; "
        "graph_machine.lab.cli.usage(); "
        "heavy = {'torch', 'numpy', 'matplotlib', 'numba'} & set(sys.modules); "
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_config_imports_no_torch_anywhere() -> None:
    for path in [*(ROOT / "config").rglob("*.py"), ROOT / "lab" / "config.py"]:
        tops = {name.split(".")[0] for name in imported_modules(path)}
        assert tops <= set(sys.stdlib_module_names) | {"graph_machine"}, path
