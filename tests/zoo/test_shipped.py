"""Every model that ships: it loads, fits its card, is small, and does what the card says."""

import math
import shlex
import tomllib
from pathlib import Path

import pytest
import tyro

from graph_machine import files
from graph_machine.files import shipped
from graph_machine.lab.cli._options import Train
from graph_machine.lab.cli.train import resolved_config
from graph_machine.lab.config import MazeConfig, SudokuConfig, TaskConfig
from graph_machine.lab.tasks.base import make_task, task_of
from graph_machine.lab.tasks.rows import Splits
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import evaluate
from graph_machine.lab.zoo import add, cards
from graph_machine.models import GraphMachine
from graph_machine.models.checkpoint import read_config

ROOT = Path(__file__).parents[2]
PUZZLES = 64
SEED = 987_654  # of puzzles that no run was trained on, but by chance

every_model = pytest.mark.parametrize("name", shipped())


@every_model
def test_the_model_is_the_one_of_its_card(name: str) -> None:
    card, model = cards.read_card(name), GraphMachine.from_pretrained(name)
    folder = files.ZOO / name
    assert card.name == name
    assert model.num_parameters == card.parameters
    assert model.config.num_layers == card.training.layers
    assert (folder / "model.safetensors").stat().st_size == card.bytes < add.LARGEST
    assert (folder / "README.md").read_text(encoding="utf-8") == cards.card_markdown(card)
    assert len({found["on"] for found in card.accuracy}) == len(card.accuracy)
    # The command of its card trains this model.
    args, told = tyro.cli(Train, args=shlex.split(card.training.command)[2:]), read_config(folder)
    config = resolved_config(args)
    assert config.model.to_dict() == model.config.to_dict()
    assert config.task == TaskConfig.from_dict(told["task"])
    assert (config.train.steps, args.seed) == (card.training.steps, told["seed"])


@every_model
def test_the_accuracy_of_its_card(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On new puzzles made like those it was trained on; the bound is loose, but not for a ruin."""
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    card, model = cards.read_card(name), GraphMachine.from_pretrained(name)
    assert card.example is not None
    puzzle, solution, solved = card.example.values()
    task = TaskConfig.from_dict(read_config(files.ZOO / name)["task"])
    if solved:
        example = task_of(task).parse(puzzle)
        texts = model.predict(example.tokens, example.graph).texts
        assert texts == [solution]
    if card.data["source"] != "generated":
        return
    count = "mazes" if isinstance(task, MazeConfig) else "puzzles"
    task = task.replace(**{count: PUZZLES}, data_seed=SEED)
    if isinstance(task, SudokuConfig):
        whole = SudokuTask(task)
        whole.use(whole.generated(), splits=Splits.tests(PUZZLES))
        found = evaluate(model, whole, "test").summary()
    else:
        found = evaluate(model, make_task(task), "train").summary()  # nobody trained on them
    stated = card.accuracy[0]
    whole_right = "maze_accuracy" if count == "mazes" else "board_accuracy"
    share = stated[whole_right]
    slack = 4 * math.sqrt(share * (1 - share) / PUZZLES)
    assert found[whole_right] >= share - slack - 0.1
    assert found["cell_accuracy"] >= stated["cell_accuracy"] - 0.1


def test_the_package_takes_the_files_along() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["graph_machine"]
    package = files.ZOO.parent.parent.parent
    taken = {path for pattern in patterns for path in package.glob(pattern)}
    # A `**` at the end stands for files only from Python 3.13 on; setuptools reads it so already.
    taken |= {path for folder in list(taken) if folder.is_dir() for path in folder.iterdir()}
    for name in shipped():
        for file in ("config.json", "model.safetensors", "card.json", "README.md"):
            assert files.ZOO / name / file in taken
    assert "lab/zoo/models/**" in patterns
