"""A task and a condition of one's own from the command line: everything that Sudoku can do."""

import json
import shutil
from pathlib import Path

import pytest

from graph_machine.ops import native
from graph_machine.ops.native.builds import kernels_folder
from support.shell import command

HERE = Path(__file__).parent.parent / "support" / "mirror_task.py"
TRAIN = ["train", "mirror-narrow", "--task", "mirror", "--budget", "smoke", "--steps", "3"]
SMALL = ["--set", "model.num_layers=1", "train.log_every=1", "train.eval_every=2"]


class Shell:
    """Commands in processes of their own, which share nothing but files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "my_task.py"
        shutil.copy(HERE, self.own)
        # In an empty cache, the first command would wait for a compiler.
        native.library()
        built = kernels_folder()
        assert built is not None
        shutil.copytree(built, folder / "cache" / "kernels")

    def __call__(self, *words: str | Path, code: int = 0) -> str:
        cache = {"GRAPH_MACHINE_CACHE": str(self.folder / "cache")}
        found, text = command([str(word) for word in words], self.folder, cache)
        assert found == code, text
        assert "Traceback" not in text
        return text


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("own"))
    text = made("--import", made.own, *TRAIN, *SMALL, "--out", "run", "--progress", "none")
    assert "examples" in text
    assert "test rows after 3 steps" in text
    return made


@pytest.mark.slow
def test_the_run_remembers_where_its_task_is(shell: Shell) -> None:
    facts = json.loads((shell.folder / "run" / "run.json").read_text())
    assert facts["imports"] == [str(shell.own)]
    assert facts["config"]["train"]["batch_size"] == 4, "the task's own budget"
    result = json.loads((shell.folder / "run" / "result.json").read_text())
    assert result["label"] == "mirror-4"
    assert next(iter(result["metrics"])) == "example_accuracy"
    assert sum(part["examples"] for part in result["groups"]["a"].values()) == 16
    # The command that makes it again names everything.
    assert "finished" in facts["status"]


@pytest.mark.slow
def test_evaluate_solve_and_resume_need_no_import(shell: Shell) -> None:
    found = json.loads(shell("evaluate", "run", "--json"))
    assert found["examples"] == 16
    assert found["references"]["as it stands"]["examples"] == 16
    assert "examples by number of a's" in shell("evaluate", "run")
    assert len(shell("solve", "run", "abca").split()[0]) == 4
    assert "not allowed" in shell("solve", "run", "abcx", code=2)
    assert "Expected 4 characters" in shell("solve", "run", "ab", code=2)
    assert "16 test rows" in shell("train", "--resume", "--out", "run", "--progress", "none")


@pytest.mark.slow
def test_record_stats_and_figures(shell: Shell) -> None:
    assert "4 rows" in shell("record", "run", "--samples", "0-3", "--out", "r.rec.safetensors")
    text = shell("stats", "run", "--limit", "8", "--detect", "4")
    assert "mirror-narrow" in text
    shell("figures", "r.rec.safetensors", "--only", "labour", "--out", "figures")
    assert list((shell.folder / "figures").glob("*.png"))
    shell("explore", "run", "--export", "page.html")
    assert (shell.folder / "page.html").stat().st_size > 10_000


@pytest.mark.slow
def test_sweep_and_report(shell: Shell) -> None:
    words = ["sweep", "--conditions", "gm,mirror-narrow", "--task", "mirror", "--budget", "smoke"]
    words += ["--seeds", "0", "--set", "train.steps=2", "model.num_layers=1", "--out", "runs"]
    assert "2 finished" in shell("--import", shell.own, *words)
    text = shell("report", "runs")
    assert "mirror-narrow" in text
    assert "mirror-4" in text
    assert "No model" in shell("models") or "gm-" in shell("models")
    shell("models", "add", "runs/smoke/mirror-4/gm/seed-0", "--name", "mirror", "--into", "zoo")
    assert "rows" in (shell.folder / "zoo" / "mirror" / "README.md").read_text()
    assert "examples" in shell("evaluate", "zoo/mirror")


@pytest.mark.slow
def test_code_of_a_folder_from_elsewhere_is_not_run(shell: Shell, tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('ran')")
    shutil.copytree(shell.folder / "run", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace(str(shell.own), str(evil)))
    text = shell("evaluate", tmp_path / "run", code=2)
    assert "never named on this machine" in text
    assert "ran" not in text.replace("transformer", "")
    report = shell("report", tmp_path, code=2)
    assert "never named on this machine" in report


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--import"], "--import takes a Python file"),
        (["--import", "nowhere.py"], "there is no such Python file"),
        (["--import", "no_such_module_here"], "there is no module 'no_such_module_here'"),
        (["--import", "broken.py"], "could not be imported (ZeroDivisionError"),
    ],
)
def test_imports_that_cannot_be(words: list[str], message: str, tmp_path: Path) -> None:
    from graph_machine.errors import ConfigError
    from graph_machine.lab.cli import run

    (tmp_path / "broken.py").write_text("1 / 0")
    named = [str(tmp_path / word) if word == "broken.py" else word for word in words]
    with pytest.raises(ConfigError) as caught:
        run(["models", *named])
    assert message in str(caught.value)
