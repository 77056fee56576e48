"""What a task may ask of a model: answers at nodes, edges, graphs, choices; classes or numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
import torch

from graph_machine.config import InputSpec
from graph_machine.errors import ConfigError, DataError, ShapeError
from graph_machine.graphs import InputGraph, batch_graphs, graph_from_edge_index
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.tasks.base import Split
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.lab.training.evaluate import evaluate
from graph_machine.lab.training.trainer import Trainer
from graph_machine.models import GraphMachine, PairReadout
from graph_machine.models.readout import Choice
from graph_machine.ops.address.dense import one_hot_addresses
from graph_machine.spaces.dense import DenseAddresses
from graph_machine.state import GivenEdges, GraphState
from support.runs import tiny

K = 5


@dataclass(frozen=True)
class RingConfig(TaskConfig):
    output: Literal["node", "edge", "slot", "pointer", "graph", "pair"] = "node"
    choices: int = 0
    numbers: bool = False
    tokens: bool = False


class RingTask(GeneratedTask):
    """Rings of 3 to 6 nodes with random features; the answers are of the right shape, no more."""

    sizes = {"train": 8, "eval": 4, "test": 4}  # noqa: RUF012

    def make_spec(self) -> InputSpec:
        return InputSpec(
            num_tokens=4 if self.config.tokens else None,
            num_outputs=2,
            output=self.config.output,
            graph_choices=self.config.choices,
            output_kind="numbers" if self.config.numbers else "classes",
            node_features=3,
            edge_features=2,
            num_edge_categories=3,
        )

    def one(self, n: int, random: torch.Generator) -> Batch:
        places = torch.arange(n)
        edges = torch.stack([places, places.roll(-1)])
        graph = graph_from_edge_index(
            edges,
            num_nodes=n,
            num_edges=K,
            edge_features=torch.randn(n, 2, generator=random),
        )
        q = {"edge": n * K, "graph": 1, "pair": 2}.get(self.config.output, n)
        answers = torch.randint(2, (1, q), generator=random)
        if self.config.output == "pointer":
            chosen = torch.randint(n, (1, self.config.choices), generator=random)
            answers = torch.cat([edges[1][None], chosen], dim=1)
        if self.config.numbers:
            answers = torch.randn(1, q, 2, generator=random)
        tokens = torch.zeros(1, n, dtype=torch.long) if self.config.tokens else None
        return Batch(
            tokens,
            answers,
            torch.ones(answers.shape[:2], dtype=torch.bool),
            {"n": np.array([n])},
            graph.expand(1),
            features=torch.randn(1, n, 3, generator=random),
            pairs=edges.mT[None, :2] if self.config.output == "pair" else None,
        )

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        random = torch.Generator().manual_seed(key % 2**63)
        sizes = torch.randint(3, 7, (count,), generator=random).tolist()
        return Batch.join([self.one(n, random) for n in sizes])


def cases() -> Iterator[RingConfig]:
    for output in ("node", "edge", "slot", "pointer", "graph", "pair"):
        yield RingConfig(output=output)
    yield RingConfig(output="pointer", choices=2)
    yield RingConfig(output="graph", numbers=True)
    yield RingConfig(tokens=True)


@pytest.mark.parametrize(
    "task", list(cases()), ids=lambda c: f"{c.output}-{c.choices}-{c.numbers}-{c.tokens}"
)
@pytest.mark.parametrize("condition", ["gm", "transformer"])
def test_every_kind_of_output_learns_and_is_scored(condition: str, task: RingConfig) -> None:
    made = RingTask(task).open()
    config = tiny(condition).replace(task=task).with_model(num_edges=K, project_input_edges=True)
    if task.output == "edge" and condition == "transformer":
        with pytest.raises(ConfigError, match="edges"):
            Trainer(config, made, seed=0, device=torch.device("cpu"))
        return
    trainer = Trainer(config, made, seed=0, device=torch.device("cpu"))
    stats = trainer.step(0)
    assert np.isfinite(stats["loss"])
    assert stats["examples"] == 8
    unused = [n for n, p in trainer.model.named_parameters() if p.grad is None]
    # Edges are not read by the last node sublayer, and node features not by an answer at edges.
    assert not [n for n in unused if "readout" in n]
    scores = evaluate(trainer.model, made, "test", batch_size=3)
    assert len(scores) == 4
    found = scores.summary()
    assert found[made.metrics[0].name] is not None
    batch = next(made.split_batches("test", 4))
    assert batch.features is not None
    seen = trainer.model.predict(
        batch.tokens, batch.graph, batch.node_mask, batch.features, batch.pairs
    )
    q = batch.where.shape[1]
    assert seen.answers.shape == ((4, q, 2) if task.numbers else (4, q))
    whole = trainer.model.eval()(**batch.inputs).logits
    assert whole.shape[:2] == (4, q)


def test_padding_changes_no_answer() -> None:
    for output in ("node", "slot", "pointer", "graph", "pair"):
        task = RingTask(RingConfig(output=output))
        random = torch.Generator().manual_seed(0)
        small, large = task.one(3, random), task.one(6, random)
        both = Batch.join([small, large])
        assert both.node_mask is not None
        assert both.node_mask.sum(dim=1).tolist() == [3, 6]
        model = GraphMachine(tiny().model, task.spec).eval()
        alone, beside = model(**small.inputs).logits, model(**both.inputs).logits
        torch.testing.assert_close(beside[:1, : alone.shape[1], : alone.shape[2]], alone)
        first = next(iter(both.unpadded()))
        assert first.where.shape == small.where.shape
        torch.testing.assert_close(model(**first.inputs).logits, alone)


def test_pairs_read_the_edges_of_the_first_by_their_mass_on_the_second() -> None:
    task = RingTask(RingConfig(output="pair"))
    batch = task.one(5, torch.Generator().manual_seed(0))
    assert batch.pairs is not None
    model = GraphMachine(tiny().model, task.spec).double().eval()
    given = {**batch.inputs, "features": torch.randn(1, 5, 3).double()}
    assert batch.known_graph.features is not None
    given["graph"] = replace(batch.known_graph, features=batch.known_graph.features.double())
    out = model(**given)
    readout, addresses, edges = model.readout, out.state.addresses, out.state.edge_features
    assert addresses is not None
    assert edges is not None
    nodes = model.norm(out.state.node_features)[0]
    for place, (source, target) in enumerate(batch.pairs[0].tolist()):
        masses = addresses.to_dense()[0, source, :, target]
        summed = torch.stack([m * readout.edge_norm(e) for m, e in zip(masses, edges[0, source])])
        hidden = readout.up(torch.cat([nodes[source], nodes[target], summed.sum(0)]))
        expected = readout.down(torch.nn.functional.silu(hidden))
        torch.testing.assert_close(out.logits[0, place], expected)
    with pytest.raises(ShapeError, match="no pairs"):
        model(**{**given, "pairs": None})
    with pytest.raises(ShapeError, match="pairs"):
        model.predict(None, batch.known_graph, features=batch.features, pairs=batch.pairs[..., :1])
    with pytest.raises(DataError, match="node ids"):
        model.predict(None, batch.known_graph, features=batch.features, pairs=batch.pairs + 4)


def test_a_model_says_what_inputs_it_misses() -> None:
    task = RingTask(RingConfig())
    model = GraphMachine(tiny().model, task.spec)
    batch = task.one(3, torch.Generator())
    assert batch.features is not None
    inputs = batch.inputs
    with pytest.raises(ShapeError, match="node features"):
        model(**{**inputs, "features": None})
    with pytest.raises(ShapeError, match="tokens"):
        model(**{**inputs, "tokens": torch.zeros(1, 3, dtype=torch.long)})
    with pytest.raises(ShapeError, match=r"and 2 edge features, got .* and 0"):
        model(**{**inputs, "graph": replace(batch.known_graph, features=None)})
    with pytest.raises(DataError, match="no inputs"):
        model.predict(None)


def test_graphs_move_are_indexed_and_expanded() -> None:
    graph = InputGraph(torch.zeros(4, 3, 2).long(), torch.zeros(4, 3, 2).long(), 2)
    assert graph[1:3].targets.shape == (2, 3, 2)
    assert graph[1].targets.shape == (3, 2)
    shared = graph[1]
    assert shared[0:2] is shared  # it belongs to every example
    assert shared.expand(5).targets.shape == (5, 3, 2)
    assert graph.to("cpu").categories.device.type == "cpu"
    joined, mask = batch_graphs([shared, shared])
    assert joined.targets.shape == (2, 3, 2)
    assert mask.all()
    with pytest.raises(DataError, match="no examples"):
        Batch.join([])


def test_generated_examples_do_not_depend_on_how_they_are_asked_for() -> None:
    task = RingTask(RingConfig()).open()
    whole = next(task.split_batches("test", 4))
    parts = list(task.split_batches("test", 3, limit=3))
    assert len(parts) == 1
    assert torch.equal(whole.answers[:3], parts[0].answers)
    assert torch.equal(task.batch(3, 2, 0).answers, task.batch(3, 2, 0).answers)
    with pytest.raises(DataError, match="--data"):
        task.open("file.csv")


@pytest.mark.parametrize("empty", [False, True])
def test_choices_and_pairs_read_given_edges_as_they_read_made_ones(empty: bool) -> None:
    torch.manual_seed(0)
    n, k, g, d = 5, 3, 2, 4
    nodes, made = torch.randn(1, n, 8), torch.randn(1, n, k, d)
    addresses = torch.rand(1, n, k, n).softmax(dim=-1)
    targets, given = torch.randint(n, (1, n, g)), torch.randn(1, n, g + empty, d)
    beside = GivenEdges(given, targets, empty)
    state = GraphState(nodes, made, DenseAddresses(addresses), given=beside)
    hard = one_hot_addresses(targets, n)
    rows = [addresses, hard] + [torch.full((1, n, 1, n), 1 / n)] * empty
    dense = torch.cat(rows, dim=2)
    whole = GraphState(nodes, torch.cat([made, given], dim=2), DenseAddresses(dense))
    choice = Choice(8, d)
    torch.testing.assert_close(choice(nodes, state), choice(nodes, whole))
    pairs = torch.tensor([[[0, int(targets[0, 0, 0])], [1, 2]]])
    readout = PairReadout(8, d, 3)
    real = GraphState(
        nodes, torch.cat([made, given[:, :, :g]], dim=2), DenseAddresses(dense[:, :, : k + g])
    )
    expected = readout.of_state(nodes, real, pairs)
    torch.testing.assert_close(readout.of_state(nodes, state, pairs), expected)
