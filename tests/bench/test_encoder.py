"""The comparison of encoders resumes, and makes tables of its file."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip(
    "torch_geometric",
    reason="torch_geometric is not installed; with the extra 'pyg', it is tested",
)
from benchmarks import encoder_table, encoder_tasks


def few(make: Any) -> Any:
    """A task of four graphs."""
    made = [make(number) for number in range(4)]
    outputs = 1 if made[0].y.is_floating_point() else 12
    return lambda seed, tu: encoder_tasks.Task(made[1:], {"": made[:1]}, outputs, of_nodes=True)


def test_what_is_in_the_file_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoder_tasks.TASKS, "paths", few(encoder_tasks.paths_graph))
    monkeypatch.setitem(encoder_tasks.TASKS, "bfs", few(encoder_tasks.bfs_graph))
    out = tmp_path / "found.jsonl"
    asked = {"models": ("gm", "gine"), "seconds": 1e-3, "seeds": (0,), "width": 8, "out": out}
    encoder_tasks.main(encoder_tasks.Settings(tasks=("bfs",), **asked))
    encoder_tasks.main(encoder_tasks.Settings(tasks=("bfs", "paths"), **asked))
    runs = [json.loads(line)["run"] for line in out.read_text().splitlines()]
    tasks = [(run["task"], run["model"]) for run in runs]
    assert tasks == [("bfs", "gm"), ("bfs", "gine"), ("paths", "gm"), ("paths", "gine")]
    table = encoder_table.table(encoder_table.read(out), parameters=False)
    assert table.count("\n") == 3
    assert "| – | – | – |" in table


def test_lengths_of_paths() -> None:
    """Steps and lengths from the marked node of a path of three."""
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
    data: Any = SimpleNamespace(x=x, edge_index=edge_index, num_edges=4)
    weights = torch.tensor([0.5, 0.5, 0.25, 0.25])
    assert encoder_tasks.lengths(data).tolist() == [0, 1, 2, float("inf")]
    assert encoder_tasks.lengths(data, weights).tolist()[:3] == [0, 0.5, 0.75]
