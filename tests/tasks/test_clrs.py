"""CLRS-30: files of the benchmark, its graphs, its score, its sampler where that is installed."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.lab.cli import run
from graph_machine.lab.config import ClrsConfig
from graph_machine.lab.tasks.base import make_task, task_of
from graph_machine.lab.tasks.clrs import BOTH, EMPTY, IN, OUT, PROBES, SELF, ClrsTask, graph_of
from graph_machine.models import GraphMachine
from support.runs import tiny

FOLDER = Path(__file__).parent.parent / "assets" / "clrs"


def task_for(algorithm: str = "bfs", **settings: object) -> ClrsTask:
    task = make_task(ClrsConfig().replace(algorithm=algorithm, **settings), str(FOLDER))
    assert isinstance(task, ClrsTask)
    return task


def test_a_file_is_split_as_the_benchmark_is() -> None:
    task = task_for()
    assert task.sizes == {"train": 24, "eval": 6, "test": 4}
    assert task.identity == make_task(task.config, str(FOLDER / "bfs.npz")).identity
    batch = task.batch(0, 8, seed=0)
    assert batch.features is not None
    assert batch.features.shape == (8, 16, 2)
    test = next(task.split_batches("test", 8))
    assert test.answers.shape == (4, 64)
    assert set(test.groups["nodes"]) == {64.0}
    assert test.known_graph.check().num_edges > test.known_graph.targets.shape[1] // 4
    assert len(next(task.split_batches("eval", 8, limit=3))) == 3
    # Every parent of bfs is a neighbour, or the node itself.
    assert (test.known_graph.targets == test.answers.unsqueeze(-1)).any(dim=-1).all()


def test_positions_are_random_in_training_only_and_keep_their_order() -> None:
    drawn, fixed = (task_for(random_positions=value).batch(3, 8, 1) for value in (True, False))
    assert drawn.features is not None
    assert fixed.features is not None
    assert not torch.equal(drawn.features[..., 0], fixed.features[..., 0])
    order = [features[..., 0].argsort(dim=-1) for features in (drawn.features, fixed.features)]
    assert torch.equal(order[0], order[1])
    assert torch.equal(drawn.features[..., 1], fixed.features[..., 1])
    zero = task_for(first_at_zero=True).batch(3, 8, 1).features
    assert zero is not None
    assert torch.equal(zero[..., 0], drawn.features[..., 0].where(zero[..., 0] > 0, 0))
    assert ((zero[..., 0] == 0).sum(dim=-1) == 1).all()
    again = task_for().batch(3, 8, 1)
    assert again.features is not None
    assert torch.equal(drawn.features, again.features)


def test_weights_have_other_units_in_training_only() -> None:
    plain, scaled = (task_for(least_scale=value) for value in (1.0, 0.2))
    before, after = (each.batch(3, 8, 1).graph for each in (plain, scaled))
    assert before is not None
    assert after is not None
    assert before.features is not None
    assert after.features is not None
    there = before.features != 0
    units = [(new[x] / old[x]) for new, old, x in zip(after.features, before.features, there)]
    assert all(torch.allclose(unit, unit[0]) and 0.2 <= unit[0] <= 1 for unit in units)
    assert len({float(unit[0]) for unit in units}) == 8
    tests = [next(each.split_batches("test", 4)).graph for each in (plain, scaled)]
    assert torch.equal(*(graph.features for graph in tests if graph and graph.features is not None))


def test_edges_along_and_against_their_direction() -> None:
    adj = np.array([[[1, 1, 0], [0, 1, 1], [0, 1, 1]]], dtype=float)
    weights = np.array([[[0, 0.5, 0], [0, 0, 0.25], [0, 0.75, 0]]])
    graph = graph_of(adj, weights, 1, 3)
    assert graph.targets[0].tolist() == [[0, 1, -1], [0, 1, 2], [1, 2, -1]]
    expected = [[SELF, OUT, EMPTY], [IN, SELF, BOTH], [BOTH, SELF, EMPTY]]
    assert graph.categories[0].tolist() == expected
    assert graph.features is not None
    assert graph.features[0, 1].tolist() == [[0, 0.5], [0, 0], [0.25, 0.75]]
    assert graph_of(None, None, 2, 3).targets.tolist() == [[[0], [1], [2]]] * 2


def test_the_score_is_the_mean_over_outputs() -> None:
    task = task_for("topological_sort")
    assert task.spec.graph_choices == 1
    test = next(task.split_batches("test", 8))
    assert test.answers.shape == (4, 65)
    assert task.score(test.answers, test)["score"].tolist() == [1.0] * 4
    wrong = test.answers.clone()
    wrong[0, 64] = (wrong[0, 64] + 1) % 64
    wrong[1, :16] = (wrong[1, :16] + 1) % 64
    assert task.score(wrong, test)["score"].tolist() == [0.5, 0.875, 1.0, 1.0]
    logits = torch.nn.functional.one_hot(test.answers, 64).float()
    losses = task.losses(logits, test)
    head = torch.nn.functional.cross_entropy(logits[:, 64], test.answers[:, 64], reduction="none")
    torch.testing.assert_close(losses, head)  # all are equally sure
    model = GraphMachine(tiny().model.replace(given_edges="always"), task.spec)
    assert model(**test.inputs).logits.shape == (4, 65, 64)


def test_a_mask_alone_asks_no_pointer(tmp_path: Path) -> None:
    rng, arrays = np.random.default_rng(0), {}
    for split in ("train", "val", "test"):
        keys = rng.random((5, 6))
        arrays[f"{split}/in/pos"] = np.tile(np.arange(6) / 6, (5, 1))
        arrays[f"{split}/in/key"] = keys
        arrays[f"{split}/out/min"] = np.eye(6)[keys.argmin(axis=-1)]
    np.savez(tmp_path / "minimum.npz", **arrays)
    task = make_task(ClrsConfig(algorithm="minimum"), str(tmp_path))
    batch = task.batch(0, 4, 0)
    assert batch.where.sum(dim=-1).tolist() == [1] * 4
    assert batch.features is not None
    assert torch.equal(batch.answers[:, 6], batch.features[..., 1].argmin(dim=-1))
    assert task.score(batch.answers, batch)["score"].tolist() == [1.0] * 4


@pytest.mark.parametrize("algorithm", list(PROBES))
def test_the_benchmark_samples_its_own_data(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sampler is called as its documentation says; with dm-clrs, it is the real one."""
    if "clrs" not in sys.modules:
        calls, fake = [], ModuleType("clrs")

        def build_sampler(name: str, *, seed: int, num_samples: int, length: int) -> tuple:
            calls.append((seed, num_samples, length))
            shape, points = (num_samples, length), PROBES[name]
            made = {probe: np.zeros(shape) for probe in (*points.nodes, *points.pointers)}
            made |= {probe: np.eye(length)[np.zeros(num_samples, int)] for probe in points.choices}
            if points.graph:
                made |= dict.fromkeys(("adj", "A"), np.ones((*shape, length)))
            listed = [SimpleNamespace(name=probe, data=data) for probe, data in made.items()]
            features = SimpleNamespace(inputs=tuple(listed[:2]))
            feedback = SimpleNamespace(features=features, outputs=tuple(listed[2:]))
            return SimpleNamespace(next=lambda: feedback), None

        fake.build_sampler = build_sampler  # pyrefly: ignore
        monkeypatch.setitem(sys.modules, "clrs", fake)
    task = make_task(ClrsConfig().replace(algorithm=algorithm))
    assert task.sizes == {"train": 1_000, "eval": 32, "test": 32}
    assert task.batch(0, 4, 0).num_nodes == 16
    assert next(task.split_batches("test", 4)).num_nodes == 64


def test_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"dijkstra\.npz"):
        make_task(ClrsConfig(algorithm="dijkstra"), str(FOLDER))
    with pytest.raises(DataError, match="train/out/topo"):
        make_task(ClrsConfig(algorithm="topological_sort"), str(FOLDER / "bfs.npz"))
    with np.load(FOLDER / "bfs.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "bfs.npz", **arrays | {"val/out/pi": arrays["val/out/pi"] + 16})
    with pytest.raises(DataError, match="0 to 15"):
        make_task(ClrsConfig(), str(tmp_path))
    np.savez(tmp_path / "bfs.npz", **arrays | {"val/in/adj": arrays["val/in/adj"][:, :3]})
    with pytest.raises(DataError, match="val/in/adj"):
        make_task(ClrsConfig(), str(tmp_path))
    (tmp_path / "bfs.npz").write_text("nothing")
    with pytest.raises(DataError, match="Cannot read"):
        make_task(ClrsConfig(), str(tmp_path))
    monkeypatch.setitem(sys.modules, "clrs", None)
    with pytest.raises(MissingExtraError, match="dm-clrs"):
        task_of(ClrsConfig()).open()


def test_a_dry_run_reads_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "clrs-gm-recurrent-local", "--budget", "smoke", "--data", str(FOLDER)]
    assert run([*words, "--dry-run"]) == 0
    assert f"of {FOLDER}" in capsys.readouterr().out
