"""Code of one's own: where it is found, what is said when it cannot be, installed packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab import plugins
from graph_machine.lab.cli import main, run
from graph_machine.lab.conditions import CONDITIONS
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.config import TASK_CONFIGS, TaskConfig
from graph_machine.lab.plugins import load, load_installed, load_remembered, loaded
from graph_machine.lab.sweeps.grid import Job
from graph_machine.lab.tasks.base import TASKS, task_of

TASK = """
from dataclasses import dataclass
from typing import ClassVar
from graph_machine.lab.config import TaskConfig

@dataclass(frozen=True)
class OwnConfig(TaskConfig):
    name: ClassVar[str] = "{name}"
"""
# With its class, which a second file of the same task cannot register.
WHOLE = (
    TASK
    + """
from graph_machine.lab.tasks.generated import GeneratedTask

class OwnTask(GeneratedTask):
    name = "{name}"
"""
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, and a process that has imported nothing yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    for registry in (TASK_CONFIGS, TASKS):
        monkeypatch.setattr(registry, "_items", dict(registry))
    for name in ("_loaded", "_named", "_looked_for", "_installed"):
        monkeypatch.setattr(plugins, name, type(getattr(plugins, name))())
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if not name.startswith(("graph_machine.", "torch", "numpy")):
            del sys.modules[name]


def installed(folder: Path, module: str, text: str) -> None:
    """What pip leaves of a package with an entry point."""
    (folder / f"{module}.py").write_text(text)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[graph_machine]\nown = {module}\n")


def test_an_installed_task_is_found_wherever_it_is_asked_for(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(here, "installed_here", TASK.format(name="installed-own"))
    monkeypatch.syspath_prepend(here)
    assert TaskConfig.from_dict({"name": "installed-own"}).name == "installed-own"


def test_a_worker_of_a_sweep_has_installed_tasks(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(here, "installed_there", TASK.format(name="installed-there"))
    job = Job("gm", 0, "smoke", config_for("gm", "smoke"), here / "run").to_dict()
    monkeypatch.syspath_prepend(here)
    Job.from_dict(job)
    assert "installed-there" in TASK_CONFIGS


@pytest.mark.parametrize("broken", ["1 / 0", "import sys; sys.exit(3)", "import no_such_thing"])
def test_a_broken_package_stops_nothing(
    here: Path,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed(here, "installed_broken", broken)
    monkeypatch.syspath_prepend(here)
    load_installed()
    load_installed()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("graph-machine: the plug-in installed_broken could not be loaded: ")


def test_a_module_of_the_current_folder_is_its_file(here: Path) -> None:
    (here / "own_module.py").write_text(TASK.format(name="own-module"))
    load(["own_module"])
    assert loaded() == [str(here / "own_module.py")]
    assert "own-module" in TASK_CONFIGS


def test_a_package_of_the_current_folder_and_neighbours_are_found(here: Path) -> None:
    (here / "own_package").mkdir()
    (here / "own_package" / "__init__.py").touch()
    (here / "own_package" / "inner.py").write_text("NAME = 'own-inner'")
    load(["own_package.inner"])
    assert loaded() == ["own_package.inner"]
    (here / "far").mkdir()
    (here / "far" / "own_neighbour.py").write_text("NAME = 'own-neighbour'")
    text = "from own_neighbour import NAME\n" + TASK.replace('"{name}"', "NAME")
    (here / "far" / "own_file.py").write_text(text)
    load(["far/own_file.py"])
    assert "own-neighbour" in TASK_CONFIGS


def test_a_file_that_has_moved_is_named_where_it_is_now(here: Path) -> None:
    before, after = here / "before.py", here / "after.py"
    before.write_text(TASK.format(name="own-moved"))
    load([str(before)])
    plugins._loaded.clear()
    plugins._named.clear()
    before.rename(after)
    with pytest.raises(ConfigError, match="there"):
        load_remembered([str(before)], "RUN")
    TASK_CONFIGS._items.pop("own-moved")  # another process
    load([str(after)])
    load_remembered([str(before)], "RUN")
    assert loaded() == [str(after)]
    with pytest.raises(ConfigError, match="machine"):
        load_remembered(["a_module_from_elsewhere"], "RUN")


def another_process(*names: str) -> None:
    plugins._loaded.clear()
    plugins._named.clear()
    for name in names:
        TASK_CONFIGS._items.pop(name)
        TASKS._items.pop(name)
    for name in [name for name in sys.modules if name.startswith("graph_machine_import_")]:
        del sys.modules[name]


def test_a_copy_that_the_user_names_wins_over_what_a_run_remembers(here: Path) -> None:
    before, after = here / "before.py", here / "after.py"
    for file in (before, after):  # copied, not moved: both are there
        file.write_text(WHOLE.format(name="own-copied"))
    load([str(before)])
    another_process("own-copied")
    load([str(after)])
    load_remembered([str(before)], "RUN")
    assert loaded() == [str(after)]


def test_an_installed_task_wins_over_what_a_run_remembers(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here / "before.py"
    file.write_text(WHOLE.format(name="own-installed"))
    load([str(file)])
    another_process("own-installed")
    installed(here, "installed_since", WHOLE.format(name="own-installed"))
    monkeypatch.syspath_prepend(here)
    load_remembered([str(file)], "RUN")
    assert loaded() == []
    assert TASKS["own-installed"].__module__ == "installed_since"


def test_names_of_this_package_and_of_other_runs_are_still_a_clash(here: Path) -> None:
    files = [here / "one.py", here / "two.py"]
    for file in files:
        file.write_text(WHOLE.format(name="own-twice"))
        load([str(file)])
        another_process("own-twice")
    load_remembered([str(files[0])], "RUN-1")
    with pytest.raises(
        ConfigError, match=r"'own-twice' is already registered\. This run needs.*RUN-2"
    ):
        load_remembered([str(files[1])], "RUN-2")


def test_a_remembered_module_that_is_gone_names_the_run(here: Path) -> None:
    (here / "own_gone").mkdir()
    (here / "own_gone" / "__init__.py").touch()
    load(["own_gone"])
    another_process()
    del sys.modules["own_gone"]
    (here / "own_gone" / "__init__.py").unlink()
    (here / "own_gone").rename(here / "elsewhere")
    with pytest.raises(ConfigError, match=r"no module 'own_gone'; .* This run needs it: RUN"):
        load_remembered(["own_gone"], "RUN")


@pytest.mark.parametrize("packaged", [False, True])
def test_an_error_in_code_of_the_users_is_one_line_with_its_place(
    here: Path,
    packaged: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(CONDITIONS, "_items", dict(CONDITIONS))
    text = """
from graph_machine.lab.conditions import condition

@condition("own-broken", "asks for what is not there")
def broken(base):
    return base.no_such_thing()
"""
    words = ["conditions", "show", "own-broken"]
    if packaged:
        installed(here, "own_broken", text)
        sys.path.append(str(here))
    else:
        (here / "own_broken.py").write_text(text)
        words += ["--import", "own_broken.py"]
    monkeypatch.setattr(sys, "argv", ["graph-machine", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("graph-machine: own_broken.py, line 6, in broken: AttributeError: ")
    assert told.count("\n") == 1


def remembered(here: Path, text: str = "") -> Path:
    file = here / "own.py"
    file.write_text(text)
    load([str(file)])
    another_process()
    return file


def test_changed_code_has_to_be_named_again(here: Path) -> None:
    file = remembered(here)
    load_remembered([str(file)], "RUN")
    another_process()
    file.write_text("raise SystemError")
    with pytest.raises(ConfigError, match="changed"):
        load_remembered([str(file)], "RUN")


@pytest.mark.parametrize("place", ["imports.json", "."])
def test_a_list_that_others_may_write_is_not_trusted(here: Path, place: str) -> None:
    file = remembered(here)
    (here / "cache" / place).chmod(0o777)
    with pytest.raises(ConfigError, match="never named"):
        load_remembered([str(file)], "RUN")


def test_a_module_of_the_same_name_elsewhere_is_another(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("mine", "theirs"):
        (here / folder).mkdir()
        (here / folder / "own_helper.py").touch()
    monkeypatch.syspath_prepend(here / "mine")  # as `python -m` does with the current folder
    load(["own_helper"])
    another_process()
    del sys.modules["own_helper"]
    monkeypatch.setattr(sys, "path", [str(here / "theirs"), *sys.path[1:]])
    with pytest.raises(ConfigError, match="changed"):
        load_remembered(["own_helper"], "RUN")
    assert "own_helper" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys\nsys.exit(0)", r"own\.py: .*sys\.exit"),
        ("class Odd(BaseException): pass\nraise Odd('so')", "Odd: so"),
        (TASK.format(name="sudoku"), r"--import .*own\.py: .*already"),
    ],
    ids=["ends the program", "any exception", "a name of this package"],
)
def test_a_file_that_cannot_be_imported_is_one_line(here: Path, text: str, message: str) -> None:
    (here / "own.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(["own.py"])


@pytest.mark.parametrize(
    ("text", "message"), [(TASK, "'own-part' has a config"), (WHOLE, "lacks make, make_spec")]
)
def test_a_task_that_is_not_complete(here: Path, text: str, message: str) -> None:
    (here / "own.py").write_text(text.format(name="own-part"))
    load(["own.py"])
    with pytest.raises(ConfigError, match=message):
        task_of(TASK_CONFIGS["own-part"]())


@pytest.mark.parametrize("name", ["", "--json", ".", "..", "a..b", "no-module", ".here"])
def test_an_import_of_what_is_not_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match="--import"):
        run(["conditions", "--import", name])
