"""Graph algorithms as a task: a class, an edge or a node is answered at every node."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import AlgorithmsConfig
from graph_machine.lab.tasks.algorithms import graphs
from graph_machine.lab.tasks.algorithms.graphs import FAMILIES, distances
from graph_machine.lab.tasks.answers import (
    Answer,
    Answers,
    ExactAnswer,
    PointerAnswer,
    Solution,
    Sure,
)
from graph_machine.lab.tasks.base import Baseline, Split
from graph_machine.lab.tasks.batch import Batch, Batches
from graph_machine.lab.tasks.generated import CHUNK, GeneratedTask
from graph_machine.lab.tasks.rows import stream_key
from graph_machine.lab.tasks.scores import Band, Grouping

EDGE, SELF, EMPTY = range(3)  # categories of the input edges
FAR = 15  # hops from here on are one class
UNREACHED = FAR + 1


class Problem(NamedTuple):
    """Graphs with the inputs of an algorithm."""

    edges: Bool[np.ndarray, "b n n"]
    weights: Float[np.ndarray, "b n n"]  # symmetric
    sources: Int[np.ndarray, "b"]
    keys: Float[np.ndarray, "b n"]


class AlgorithmsTask(GeneratedTask):
    """Training graphs have up to `train_nodes` nodes; the test has a quarter of each size."""

    name = "algorithms"
    examples_word = "graphs"
    shown_by = ("name_width", "long", "most_scale")
    text_hint = "the source (or keys), then edges: 0 0-1 1-2:0.5"
    config: AlgorithmsConfig

    groupings = (
        Grouping("nodes", "nodes"),
        Grouping(
            "family", "family", tuple(Band(name, i, i + 1) for i, name in enumerate(FAMILIES))
        ),
    )

    def make_spec(self) -> InputSpec:
        output: dict[str, Any] = {"bfs": "node", "paths": "slot", "components": "pointer"}
        return InputSpec(
            num_tokens=2,
            num_outputs=UNREACHED + 1 if self.config.algorithm == "bfs" else 1,
            output=output[self.config.algorithm],
            node_features=self.config.name_width + (self.config.algorithm == "components"),
            edge_features=int(self.config.algorithm == "paths"),
            num_edge_categories=3,
        )

    @property
    def usual_nodes(self) -> int:
        return self.config.train_nodes

    @property
    def label(self) -> str:
        return f"{self.config.algorithm}-{self.config.train_nodes}"

    def open(self, data: str | None = None, seed: int = 0) -> "AlgorithmsTask":
        super().open(data, seed)
        self.sizes = {**self.sizes, "test": CHUNK * len(self.config.test_sizes)}
        return self

    def bytes_to_make(self, batch_size: int) -> int:
        """Of the weights of all pairs of nodes."""
        train, test = self.config.train_nodes, max(self.config.test_sizes)
        return 8 * max(batch_size * train**2, CHUNK * test**2)

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        """Graphs of one size: `train_nodes`, in training also down to half of that."""
        rng, most = np.random.default_rng(key), self.config.train_nodes
        n = int(rng.integers(most // 2, most)) + 1 if split == "train" else most
        if split == "train" and self.config.long and rng.random() < self.config.long:
            n = most  # the longest distances occur in the largest graphs alone
        return self.problems(rng, count, n, training=split == "train")

    def split_batches(self, split: Split, batch_size: int, limit: int | None = None) -> Batches:
        if split != "test":
            yield from super().split_batches(split, batch_size, limit)
            return
        sizes = self.config.test_sizes
        total = self.sizes["test"] if limit is None else min(limit, self.sizes["test"])
        for number, n in enumerate(sizes):
            # A limit takes as many of every size, so that it is about the same question.
            count = total // len(sizes) + (number < total % len(sizes))
            rng = np.random.default_rng(stream_key("test", self.data_seed, n))
            whole = self.problems(rng, CHUNK, n)
            for first in range(0, count, batch_size):
                yield whole[first : min(first + batch_size, count)]

    def problems(
        self, rng: np.random.Generator, count: int, n: int, *, training: bool = False
    ) -> Batch:
        """Graphs of every family in turn, with random ids; in training, also long ones."""
        names = self.config.family_names
        family = np.arange(count) % len(names)
        edges = np.zeros((count, n, n), dtype=bool)
        for number, name in enumerate(names):
            rows, parts = family == number, self.config.parts
            edges[rows] = graphs.side_by_side(rng, FAMILIES[name], int(rows.sum()), n, parts)
        edges = graphs.capped(rng, edges, self.config.degree)
        longer = np.arange(count) < round(self.config.long * count) if training else family < 0
        if longer.any():
            edges[longer] = graphs.long_graphs(rng, int(longer.sum()), n)
        edges, order = graphs.relabelled(rng, edges)
        weights = np.triu(rng.uniform(0.05, 1.0, edges.shape), 1)
        problem = Problem(
            edges,
            weights + weights.transpose(0, 2, 1),
            rng.integers(n, size=count),
            rng.random((count, n)),
        )
        if longer.any():
            problem = problem._replace(
                sources=np.where(longer, order.argmin(axis=1), problem.sources)
            )
        if training and self.config.most_scale > 1:
            units = np.exp(rng.uniform(0, np.log(self.config.most_scale), (count, 1, 1)))
            problem = problem._replace(weights=problem.weights * units)
        listed = np.array([list(FAMILIES).index(name) for name in names])[family]
        groups = {"nodes": np.full(count, float(n)), "family": listed.astype(np.float64)}
        return self.batch_of(problem, groups, rng)

    def batch_of(
        self, problem: Problem, groups: dict[str, np.ndarray], rng: np.random.Generator
    ) -> Batch:
        """Slots, inputs and answers of a problem."""
        count, n, _ = problem.edges.shape
        algorithm = self.config.algorithm
        weights = problem.weights if algorithm == "paths" else None
        graph = neighbour_slots(problem.edges, weights, self.config.degree)
        tokens = np.zeros((count, n), dtype=np.int64)
        features = rng.standard_normal((count, n, self.config.name_width))
        if algorithm == "components":
            features = np.concatenate([problem.keys[..., None], features], axis=-1)
        else:
            tokens[np.arange(count), problem.sources] = 1
        answers = self.answers_of(problem, graph)
        return Batch(
            tokens=torch.from_numpy(tokens),
            answers=torch.from_numpy(answers),
            where=torch.ones(count, n, dtype=torch.bool),
            groups=groups,
            graph=graph,
            features=torch.from_numpy(features).float() if features.shape[-1] else None,
        )

    def lengths_of(self, problem: Problem) -> Float[np.ndarray, "b n n"]:
        """What an edge counts: infinite if there is none."""
        weighted = self.config.algorithm == "paths"
        return np.where(problem.edges, problem.weights if weighted else 1.0, np.inf)

    def answers_of(self, problem: Problem, graph: InputGraph) -> Int[np.ndarray, "b n"]:
        """The right answers; those of `paths` are slots of the graph."""
        if self.config.algorithm == "components":
            return graphs.largest_reachable(problem.edges, problem.keys)
        lengths = self.lengths_of(problem)
        found = distances(lengths, problem.sources)
        if self.config.algorithm == "bfs":
            near = np.minimum(np.where(np.isinf(found), 0, found), FAR)
            return np.where(np.isinf(found), UNREACHED, near).astype(np.int64)
        before = graphs.predecessors(lengths, found)[..., None]
        return (graph.targets.numpy() == before).argmax(axis=-1)

    def exact(self, batch: Batch) -> Int[Tensor, "b n"]:
        """The right answers, from the model's inputs alone."""
        graph = batch.known_graph.expand(len(batch))
        return torch.from_numpy(self.answers_of(problem_of(batch), graph))

    def nearest(self, one: Batch, given: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Right answers to one example: where several are right and one of them is given, that.

        Several shortest paths may lead to a node, and several nodes may have the largest key.
        """
        problem, found = problem_of(one), self.exact(one)[0].numpy()
        same = np.zeros(len(found), dtype=bool)
        if self.config.algorithm == "paths":
            lengths = self.lengths_of(problem)
            far = distances(lengths, problem.sources)[0]
            nodes = np.arange(len(far))
            last = one.known_graph.targets[0].numpy()[nodes, given]
            # Sums of the same weights in another order differ in their last digits.
            close = np.isclose(far[last] + lengths[0, nodes, last], far, rtol=1e-6, atol=0)
            same = close & (last >= 0) & (far > 0) & np.isfinite(far)
        elif self.config.algorithm == "components":
            keys = problem.keys[0]
            same = (found[given] == found) & (keys[given] == keys[found])
        return np.where(same, given, found)

    def baselines(self) -> dict[str, Baseline]:
        guesses: dict[str, dict[str, Baseline]] = {
            "bfs": {},
            "paths": {"the lightest edge": lightest_edge},
            "components": {"the largest key of the graph": largest_key},
        }
        return guesses[self.config.algorithm] | {"exact": self.exact}

    def parse(self, text: str) -> Batch:
        """`0 0-1 1-2:0.5`: the source, then edges with their weights (default: 1).

        For components, the first word holds the nodes' keys, separated by commas.
        """
        keys = self.config.algorithm == "components"
        n, first, edges, weights = graphs.parse_graph(text, keys=keys, degree=self.config.degree)
        source = 0 if keys else int(first[0])
        problem = Problem(
            edges[None],
            weights[None],
            np.array([source]),
            np.array([first]) if keys else np.zeros((1, n)),
        )
        return self.batch_of(problem, {}, np.random.default_rng(0))

    def text(self, example: Batch) -> str:
        features, graph = example.features, example.known_graph[0]
        first = str(int(example.known_tokens[0].argmax()))
        if self.config.algorithm == "components" and features is not None:
            first = ",".join(f"{float(key):.4g}" for key in features[0, :, 0])
        words = []
        for source, slot in (graph.targets > torch.arange(len(graph.targets))[:, None]).nonzero():
            weight = "" if graph.features is None else f":{float(graph.features[source, slot]):.4g}"
            words.append(f"{int(source)}-{int(graph.targets[source, slot])}{weight}")
        return " ".join([first, *words])

    def marked_nodes(self, example: Batch) -> list[int]:
        """The source of a search."""
        return example.known_tokens[0].nonzero().flatten().tolist()

    def node_values(self, example: Batch) -> list[str] | None:
        """The keys of `components`; names are noise."""
        if self.config.algorithm != "components" or example.features is None:
            return None
        return [f"{float(key):.2g}" for key in example.features[0, :, 0]]

    def solve(self, example: Batch) -> Solution:
        return Solution(self.exact(example)[0].numpy())

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        exact = self.nearest(example, answers) if check else None
        if self.config.algorithm == "bfs":
            return HopsAnswer(answers, exact)
        if self.config.algorithm == "paths":
            targets = example.known_graph.targets[0].numpy()
            rows = np.arange(len(targets))
            answers = targets[rows, answers]
            exact = None if exact is None else targets[rows, exact]
        return PointerAnswer(answers, exact, confidences=sure)


def problem_of(batch: Batch) -> Problem:
    """The graphs of a batch, read back from their slots."""
    graph = batch.known_graph.expand(len(batch))
    targets = graph.targets[..., 1:].numpy()
    count, n, _ = targets.shape
    places = np.where(targets >= 0, targets, n)
    edges, weights = np.zeros((count, n, n + 1), dtype=bool), np.ones((count, n, n + 1))
    np.put_along_axis(edges, places, True, axis=-1)
    if graph.features is not None:
        found = graph.features[..., 1:, 0].double().numpy()
        np.put_along_axis(weights, places, found, axis=-1)
    keys = np.zeros((count, n)) if batch.features is None else batch.features[..., 0].numpy()
    return Problem(edges[..., :n], weights[..., :n], batch.known_tokens.argmax(dim=1).numpy(), keys)


def lightest_edge(batch: Batch) -> Int[Tensor, "b n"]:
    """A guess at the way to the source: every node's lightest edge; itself where it has none."""
    assert batch.known_graph.features is not None
    weights = batch.known_graph.features[..., 0]
    edges = (batch.known_graph.targets >= 0) & (batch.known_graph.categories == EDGE)
    return weights.masked_fill(~edges, torch.inf).argmin(dim=-1) * edges.any(dim=-1)


def largest_key(batch: Batch) -> Int[Tensor, "b n"]:
    """A guess at components: the largest key of the whole graph, connected or not."""
    assert batch.features is not None
    keys = batch.features[..., 0]
    return keys.argmax(dim=-1, keepdim=True).expand_as(keys).contiguous()


@dataclass(frozen=True)
class HopsAnswer(ExactAnswer):
    """Hops from the source by node: `0 1 2 15+ -`."""

    @property
    def text(self) -> str:
        words = [*map(str, range(FAR)), f"{FAR}+", "-"]
        return " ".join(words[int(number)] for number in self.answers)


def neighbour_slots(
    edges: Bool[np.ndarray, "b n n"], weights: Float[np.ndarray, "b n n"] | None, degree: int
) -> InputGraph:
    """Itself, then its neighbours by id; ids are random."""
    count, n, _ = edges.shape
    width = min(degree, n)
    order = (~edges).argsort(axis=-1, kind="stable")[..., :width]
    real = np.take_along_axis(edges, order, axis=-1)
    own = np.broadcast_to(np.arange(n)[:, None], (count, n, 1))
    empty = np.full((count, n, degree - width), -1)
    targets = np.concatenate([own, np.where(real, order, -1), empty], axis=-1)
    categories = np.where(targets >= 0, EDGE, EMPTY)
    categories[..., 0] = SELF
    features: Tensor | None = None
    if weights is not None:
        found = np.where(real, np.take_along_axis(weights, order, axis=-1), 0.0)
        padded = np.concatenate([np.zeros_like(own), found, np.zeros_like(empty)], axis=-1)
        features = torch.from_numpy(padded[..., None]).float()
    return InputGraph(torch.from_numpy(targets), torch.from_numpy(categories), 3, features)
