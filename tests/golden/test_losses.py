"""Golden numbers: a refactor leaves them equal, a change of numerics says why it does not.

First losses of six Sudoku conditions, a recurrent one and one condition of every other task, on
the reference and on the fused path; outputs of every shipped model on ten fixed examples.

To renew them after such a change: `python tests/golden/test_losses.py`, and a changelog line under
Numerics.
"""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from graph_machine import files
from graph_machine.files import shipped
from graph_machine.lab.conditions import config_for
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.config import ExperimentConfig, TaskConfig
from graph_machine.lab.tasks.base import Task, make_task, task_of
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training.trainer import Trainer
from graph_machine.models import GraphMachine, checkpoint
from support.runs import puzzle_store, recurrent, tiny

FILE = Path(__file__).parent / "losses.json"
SUDOKU = ("gm", "transformer", "transformer-static", "gm-sin-pe", "gm-logit-space", "gm-top-4")
OTHERS = (
    "jigsaw-gm",
    "maze-gm",
    "maze-gm-recurrent-sparse",
    "pointers-gm-recurrent",
    "algorithms-gm",
    "recall-gm",
    "text-gm",
)
PATHS = ("reference", "fused")
STEPS = 5
EXAMPLES = 10


def case(name: str, backend: str) -> tuple[ExperimentConfig, Task]:
    """A small config and its task with data."""
    assert name == "recurrent" or name in CONDITIONS
    if name in OTHERS:
        config = config_for(name, "smoke").with_train(backend=backend)
        counts = {"jigsaw": {"puzzles": 100}, "maze": {"mazes": 100}}
        config = config.with_task(**counts.get(config.task.name, {}))
        return config, make_task(config.task)
    if name == "recurrent":
        config = recurrent(backend=backend, steps=50)
    else:
        config = tiny(name, backend=backend, steps=50)
    return config, SudokuTask(config.task).use(puzzle_store())


def first_losses(name: str, backend: str) -> list[float]:
    config, task = case(name, backend)
    trainer = Trainer(config, task, seed=0, device=torch.device("cpu"))
    stats = [trainer.step(step) for step in range(STEPS)]
    return [stat["loss"] / stat["examples"] for stat in stats]


def fixed_examples(task: Task) -> list[torch.Tensor]:
    """Rows of tokens without a meaning, drawn from a fixed seed: boards need not have solutions."""
    spec = task.spec
    assert spec.num_tokens is not None
    assert spec.num_nodes is not None
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(spec.num_tokens, (EXAMPLES, spec.num_nodes), generator=generator)
    return list(tokens)


@torch.no_grad()
def shipped_outputs(name: str) -> list[float]:
    """Sum of the absolute outputs for every example, and the first output."""
    model = GraphMachine.from_pretrained(name).eval()
    config = checkpoint.read_config(files.ZOO / name)["task"]
    task = task_of(TaskConfig.from_dict(config))
    examples = torch.stack(fixed_examples(task))
    graph = None
    if task.spec.graph == "given":
        count = "mazes" if task.name == "maze" else "puzzles"
        task = make_task(task.config.replace(**{count: 20}))
        batch = task.batch(0, EXAMPLES, seed=0)
        examples, graph = batch.known_tokens, batch.graph
    outputs = model(examples, graph).logits
    sums = outputs.double().abs().sum(dim=(1, 2)).tolist()
    return [*sums, float(outputs.flatten()[0])]


@pytest.mark.parametrize("backend", PATHS)
@pytest.mark.parametrize("name", [*SUDOKU, "recurrent", *OTHERS])
def test_first_losses(
    name: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    golden = json.loads(FILE.read_text())[name]
    # Exact on one machine; other CPUs sum in another order.
    assert first_losses(name, backend) == pytest.approx(golden, rel=1e-4)


@pytest.mark.parametrize("name", shipped())
def test_outputs_of_shipped_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    golden = json.loads(FILE.read_text())["shipped"][name]
    assert shipped_outputs(name) == pytest.approx(golden, rel=1e-4, abs=1e-4)


if __name__ == "__main__":
    found: dict[str, object] = {
        name: first_losses(name, "reference") for name in [*SUDOKU, "recurrent", *OTHERS]
    }
    found["shipped"] = {name: shipped_outputs(name) for name in shipped()}
    FILE.write_text(json.dumps(found, indent=2) + "\n")
