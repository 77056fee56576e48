"""The comparison of encoders: it resumes, and the tables of the docs are those of its file."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
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


def test_the_tables_of_the_docs_are_those_of_the_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-graphs.md").read_text()
    runs = encoder_table.read()
    new = encoder_table.chosen(runs)
    for parameters in (False, True):
        assert encoder_table.table(new, parameters=parameters) in page
    assert encoder_table.prices(new) in page
    assert encoder_table.rates(runs) in page


def test_a_column_without_variance_does_not_spoil_the_test() -> None:
    """Attention over nodes that are all alike: batch norm of a constant."""
    made = [encoder_tasks.tree(6, np.random.default_rng(seed)) for seed in range(8)]
    task = encoder_tasks.Task(made, {"": made}, 1)
    torch.manual_seed(0)
    model = encoder_tasks.Model("gps", 8, task, {})
    encoder_tasks.settle(model, task)
    statistics = [each for name, each in model.named_buffers() if "running_var" in name]
    assert min(float(each.min()) for each in statistics) < 1e-6
    whole = next(iter(encoder_tasks.DataLoader(made, batch_size=8)))
    torch.testing.assert_close(model.eval()(whole), model.train()(whole), atol=0.1, rtol=0.1)
