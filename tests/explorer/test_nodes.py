"""Graphs that are no board: places, links, and recordings of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from graph_machine.config import InputSpec
from graph_machine.graphs import graph_from_edge_index
from graph_machine.lab.config import AlgorithmsConfig, PointersConfig, TaskConfig
from graph_machine.lab.explorer.examples import (
    Examples,
    LiveModel,
    PageExample,
    ShownRecord,
    page_layout,
)
from graph_machine.lab.explorer.forward import unpack
from graph_machine.lab.explorer.session import Session, open_session
from graph_machine.lab.records.recorder import record
from graph_machine.lab.tasks.base import Split, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.models import GraphMachine
from support.explorer import SMALL, graph_session


@dataclass(frozen=True)
class RingConfig(TaskConfig):
    name: ClassVar[str] = "explored-ring"


class RingTask(GeneratedTask):
    """A graph task of somebody's own: nodes in a ring, known by a number, without tokens."""

    name = "explored-ring"

    def make_spec(self) -> InputSpec:
        return InputSpec(num_tokens=None, node_features=1, num_outputs=2, num_edge_categories=3)

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        del split, progress
        rng = np.random.default_rng(key)
        features = torch.from_numpy(rng.random((count, 6, 1))).float()
        around = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
        graph = graph_from_edge_index(around, num_nodes=6, num_edges=4).expand(count)
        where = torch.ones(count, 6, dtype=torch.bool)
        answers = (features[..., 0] > 0.5).long()
        return Batch(None, answers, where, graph=graph, features=features)

    def places(self, example: Batch) -> np.ndarray:
        del example
        angle = 2 * np.pi * np.arange(6) / 6
        return 0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_a_graph_task_of_ones_own() -> None:
    task = task_of(RingConfig())
    model = GraphMachine(SMALL.replace(num_edges=4), task.spec)
    session = Session([LiveModel(model, "mine", task)], Examples(task))
    about = session.describe()
    assert about["examples"][0] == {"example": "example 0", "label": "example 0"}
    assert about["symbols"] is None
    header, arrays = unpack(session.run_pack("example 0"))
    layout = header["layout"]
    assert (layout["kind"], layout["nodes"]) == ("nodes", 6)
    assert layout["places"][0] == [1.0, 0.5]
    assert sorted(map(tuple, layout["links"])) == sorted((i, (i + 1) % 6) for i in range(6))
    assert "of 6 answers right" in header["models"][0]["verdict"]
    assert arrays["0/layers.0.edge.0.address_ins"].shape == (6, 4, 6)
    drawn = session.draw()["example"]
    assert unpack(session.run_pack(drawn))[0]["example"] == drawn


def test_pointers_and_slots_are_named_by_their_target() -> None:
    for config in (PointersConfig(nodes=9, train_hops=2, test_hops=4),
                   AlgorithmsConfig(algorithm="paths", train_nodes=8)):  # fmt: skip
        session = graph_session(config)
        key = session.examples.listed[0].key
        header = unpack(session.run_pack(key))[0]
        assert all(name.startswith("→") for name in header["models"][0]["answers"])
        assert all(name.startswith("→") for name in header["solution"])
        typed = session.task.text(session.task.parse(key))
        assert session.examples.find(typed) is session.examples.find(key)


def test_loops_that_not_every_node_has_are_links() -> None:
    """Every node of pointers has an edge to itself; an end points at itself beside that."""
    session = graph_session(PointersConfig(nodes=6, train_hops=2, test_hops=4))
    layout = unpack(session.run_pack("0>3 1>1 2>0 3>1"))[0]["layout"]
    assert sorted(map(tuple, layout["links"])) == [(0, 3), (1, 1), (2, 0), (3, 1)]


def test_edges_of_all_nodes_are_told_on_graphs() -> None:
    session = graph_session(PointersConfig(nodes=6, train_hops=2, test_hops=4))
    key = session.examples.listed[0].key
    told = unpack(session.run_pack(key))[1]
    forward = session.run(key).forwards[0]
    for name in ("edge.0.address_ins", "edge.0.address_outs", "node.0.address_ins"):
        assert np.array_equal(told[f"0/layers.1.{name}"], forward.arrays[f"layers.1.{name}"])


def test_a_recording_of_given_graphs(tmp_path: Path) -> None:
    task = task_of(AlgorithmsConfig(algorithm="bfs", train_nodes=8, test_nodes="4,6"))
    model = GraphMachine(SMALL.replace(num_edges=8), task.spec)
    parts = [*task.open().split_batches("test", 2, 4)]
    batch = Batch.join(parts)
    made = record(model, batch, task=task.config.to_dict(), name="mine")
    path = made.save(tmp_path / "graphs.rec.safetensors")
    session = open_session([path])
    assert [example.nodes for example in session.examples.listed] == [4, 4, 6, 6]
    (subject,) = session.subjects
    assert isinstance(subject, ShownRecord)
    assert type(subject.task) is type(task)
    for example, part in zip(session.examples.listed, [parts[0][[0]]], strict=False):
        assert task.text(example.batch) == task.text(part)
        header = unpack(session.run_pack(example.key))[0]
        assert header["layout"] == page_layout(PageExample("", "", part, task))
        assert len(header["models"][0]["answers"]) == 4
        assert header["solution"] is not None
