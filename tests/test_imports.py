"""The rooms and their one-way order (ARCHITECTURE): parsed from the imports, printed on failure."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import graph_machine

ROOT = Path(graph_machine.__file__).parent
BASE = {"errors", "registry", "files", "locks"}
GROUND = BASE | {"state", "graphs"}

# Room -> the rooms it may import, besides itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "cpu": set(),
    "registry": {"errors"},
    "files": {"errors"},
    "locks": {"errors", "files"},
    "state": {"errors"},
    "graphs": {"errors"},
    "ops": BASE,
    "spaces": GROUND | {"ops"},
    "nn": GROUND | {"ops", "spaces"},
    "config": {"errors", "registry"},
    "tasks": GROUND | {"config"},
    "models": GROUND | {"ops", "spaces", "nn", "config"},
    "training": GROUND | {"cpu", "ops", "spaces", "nn", "config", "models", "tasks"},
    "analysis": GROUND | {"ops", "spaces", "nn", "config", "models", "tasks"},
    # A server of records: it loads models and boards for new ones, and knows no layer.
    "explorer": GROUND | {"analysis", "models", "tasks"},
}
ALLOWED["experiments"] = ALLOWED["training"] | {"training"}
ALLOWED["bench"] = ALLOWED["training"] | {"training"}
# A show of everything below the command line.
ALLOWED["demo"] = set(ALLOWED)
ALLOWED["cli"] = set(ALLOWED)
ALLOWED["__main__"] = {"cli"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


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


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute names of everything a file imports, inside functions too."""
    package = ("graph_machine", *path.relative_to(ROOT).parent.parts)
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*parts, *([node.module] if node.module else [])))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_imports() -> dict[str, dict[str, str]]:
    """Room -> imported room -> a file that imports it."""
    rooms: dict[str, dict[str, str]] = {}
    for path in sources():
        room = room_of(path)
        if room == "__init__":
            continue
        found = rooms.setdefault(room, {})
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] != "graph_machine" or len(parts) == 1:
                continue
            other = parts[1]
            is_room = (ROOT / other).is_dir() or (ROOT / f"{other}.py").exists()
            if is_room and other != room:
                found.setdefault(other, str(path.relative_to(ROOT)))
    return rooms


def drawn(rooms: dict[str, dict[str, str]]) -> str:
    lines = ["The rooms import:"]
    for room, others in rooms.items():
        lines.append(f"  {room:<12} {', '.join(sorted(others)) or '-'}")
    return "\n".join(lines)


def test_rooms_import_in_one_direction() -> None:
    rooms = room_imports()
    wrong = [
        f"{where} imports {other}: the room '{room}' may import {sorted(ALLOWED.get(room, set()))}"
        for room, others in rooms.items()
        for other, where in others.items()
        if other not in ALLOWED.get(room, set())
    ]
    assert not wrong, "\n".join([*wrong, drawn(rooms)])


def test_every_room_is_on_the_map() -> None:
    rooms = {room_of(path) for path in sources()} - {"__init__"}
    assert rooms <= set(ALLOWED), f"not on the map: {sorted(rooms - set(ALLOWED))}"


def test_the_map_itself_has_no_cycles() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {r for r, others in ALLOWED.items() if r not in done and others - {r} <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


def test_nothing_in_src_imports_tests_or_benchmarks() -> None:
    outside = {"tests", "benchmarks", "support", "tolerances", "conftest"}
    for path in sources():
        tops = {name.split(".")[0] for name in imported_modules(path)}
        assert not tops & outside, path


def test_config_and_the_command_list_do_not_wait_for_torch() -> None:
    code = (
        "import sys, graph_machine, graph_machine.config, graph_machine.cli, graph_machine.errors; "
        "graph_machine.cli.usage(); "
        "heavy = {'torch', 'numpy', 'matplotlib', 'numba'} & set(sys.modules); "
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_config_imports_no_torch_anywhere() -> None:
    for path in sorted((ROOT / "config").rglob("*.py")):
        tops = {name.split(".")[0] for name in imported_modules(path)}
        assert tops <= set(sys.stdlib_module_names) | {"graph_machine"}, path
