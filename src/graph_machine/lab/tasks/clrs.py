"""Algorithms of the CLRS-30 benchmark (Velickovic et al., 2022): inputs and outputs, no hints.

Files are `<algorithm>.npz` with arrays `<split>/in/<probe>` and `<split>/out/<probe>`; without a
file, the package `dm-clrs` samples the benchmark's canonical data.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError, MissingExtraError
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import ClrsConfig
from graph_machine.lab.tasks.base import Split, Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.rows import RowOrder, stream_key
from graph_machine.lab.tasks.scores import Grouping, Metric, answer_losses

SELF, OUT, IN, BOTH, EMPTY = range(5)  # categories of the input edges


class Probes(NamedTuple):
    """Inputs and outputs of an algorithm, by the benchmark's names."""

    nodes: tuple[str, ...]  # numbers at nodes
    graph: bool = True  # `adj` and `A`
    pointers: tuple[str, ...] = ()  # a node for every node
    choices: tuple[str, ...] = ()  # a node for the whole graph, as a one-hot mask


SEARCH = Probes(("pos", "s"), pointers=("pi",))
PROBES = {
    "bfs": SEARCH,
    "bellman_ford": SEARCH,
    "dijkstra": SEARCH,
    "mst_prim": SEARCH,
    "dag_shortest_paths": SEARCH,
    "strongly_connected_components": Probes(("pos",), pointers=("scc_id",)),
    "topological_sort": Probes(("pos",), pointers=("topo",), choices=("topo_head",)),
    "minimum": Probes(("pos", "key"), graph=False, choices=("min",)),
}


class Canonical(NamedTuple):
    """A split of the benchmark's own data."""

    name: str  # in the benchmark
    samples: int
    nodes: int
    seed: int


CANONICAL: dict[Split, Canonical] = {
    "train": Canonical("train", 1_000, 16, seed=1),
    "eval": Canonical("val", 32, 16, seed=2),
    "test": Canonical("test", 32, 64, seed=3),
}
Arrays = dict[str, Shaped[np.ndarray, "b ..."]]  # by probe


class ClrsTask(Task):
    """The score is the benchmark's: the share of right pointers, and of right choices of a node,
    averaged over the outputs of the algorithm."""

    name = "clrs"
    examples_word = "graphs"
    config: ClrsConfig
    splits: dict[Split, Arrays]
    groupings = (Grouping("nodes", "nodes"),)

    @property
    def probes(self) -> Probes:
        """The probes of the configured algorithm."""
        return PROBES[self.config.algorithm]

    def make_spec(self) -> InputSpec:
        return InputSpec(
            num_tokens=None,
            num_outputs=1,
            output="pointer",
            graph_choices=len(self.probes.choices),
            node_features=len(self.probes.nodes),
            edge_features=2 if self.probes.graph else 0,
            num_edge_categories=5,
        )

    @property
    def label(self) -> str:
        return self.config.algorithm

    @property
    def usual_nodes(self) -> int:
        return CANONICAL["train"].nodes

    def open(self, data: str | None = None, seed: int = 0) -> "ClrsTask":
        """Read `data`, a folder or a file; None: `dm-clrs` samples the canonical data."""
        del seed  # the benchmark's splits are fixed
        self.splits = self.sampled() if data is None else self.read(Path(data))
        self.sizes = {split: len(arrays["pos"]) for split, arrays in self.splits.items()}
        digest = hashlib.sha256(self.config.algorithm.encode())
        for arrays in self.splits.values():
            for name in sorted(arrays):
                digest.update(arrays[name].astype(np.float64).tobytes())
        self.identity = digest.hexdigest()[:16]
        self.source = "generated" if data is None else str(Path(data).absolute())
        return self

    def read(self, path: Path) -> dict[Split, Arrays]:
        """The splits of a file, checked."""
        if path.is_dir():
            path = path / f"{self.config.algorithm}.npz"
        if not path.is_file():
            raise DataError(f"There is no file {path}; --data takes a folder or a .npz file.")
        try:
            with np.load(path) as file:
                found = {name: file[name] for name in file.files}
        except (ValueError, OSError) as error:
            raise DataError(f"Cannot read {path} as .npz: {error}") from None
        return {split: self._split(found, split, path) for split in CANONICAL}

    def _split(self, found: dict[str, np.ndarray], split: Split, path: Path) -> Arrays:
        theirs, probes, arrays = CANONICAL[split].name, self.probes, Arrays()
        inputs = (*probes.nodes, *(("adj", "A") if probes.graph else ()))
        outputs = (*probes.pointers, *probes.choices)
        for name in (*inputs, *outputs):
            key = f"{theirs}/{'in' if name in inputs else 'out'}/{name}"
            if key not in found:
                raise DataError(
                    f"{path} lacks the array {key} of {self.config.algorithm} (task.algorithm)."
                )
            shape = found[f"{theirs}/in/pos"].shape
            wanted = (*shape, shape[-1]) if name in ("adj", "A") else shape
            if found[key].shape != wanted or len(shape) != 2 or 0 in shape:
                raise DataError(f"{path}: {key} should be {wanted}, got {found[key].shape}.")
            arrays[name] = found[key]
        for name in probes.pointers:
            low, high, n = arrays[name].min(), arrays[name].max(), arrays["pos"].shape[1]
            if low < 0 or high >= n:
                raise DataError(
                    f"{path}: {theirs}/out/{name} should be 0 to {n - 1}, got {low} to {high}."
                )
        return arrays

    def sampled(self) -> dict[Split, Arrays]:
        """The benchmark's own data, from its own sampler."""
        try:
            import clrs  # pyrefly: ignore
        except ImportError:
            raise MissingExtraError("dm-clrs", "clrs", "The task clrs without --data") from None
        found = {}
        for split, own in CANONICAL.items():
            sampler, _ = clrs.build_sampler(
                self.config.algorithm, seed=own.seed, num_samples=own.samples, length=own.nodes
            )
            feedback = sampler.next()
            points = (*feedback.features.inputs, *feedback.outputs)
            found[split] = {point.name: np.asarray(point.data) for point in points}
        return found

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        del progress
        rows = RowOrder(np.arange(self.sizes["train"]), seed)(step, batch_size)
        rng = np.random.default_rng(stream_key("clrs", seed, step))
        return self.batch_of("train", rows, rng)

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        size = self.sizes[split] if limit is None else min(limit, self.sizes[split])
        for start in range(0, size, batch_size):
            yield self.batch_of(split, np.arange(start, min(start + batch_size, size)))

    def batch_of(
        self, split: Split, rows: Int[np.ndarray, "b"], rng: np.random.Generator | None = None
    ) -> Batch:
        """Some graphs of a split; `rng` draws other positions, in the same order, and other units
        of weights. No answer depends on either.
        """
        arrays = {name: values[rows] for name, values in self.splits[split].items()}
        count, n = arrays["pos"].shape
        if rng is not None and self.config.random_positions:
            drawn = np.sort(rng.random((count, n)), axis=-1)
            if self.config.first_at_zero:
                drawn[:, 0] = 0
            order = arrays["pos"].argsort(axis=-1).argsort(axis=-1)
            arrays["pos"] = np.take_along_axis(drawn, order, axis=-1)
        if rng is not None and self.probes.graph and self.config.least_scale < 1:
            logs = rng.uniform(np.log(self.config.least_scale), 0, size=(count, 1, 1))
            arrays["A"] = arrays["A"] * np.exp(logs)
        pointers = [arrays[name] for name in self.probes.pointers]
        choices = [arrays[name].argmax(axis=-1)[:, None] for name in self.probes.choices]
        answers = np.concatenate([*(pointers or [np.zeros((count, n))]), *choices], axis=1)
        where = np.ones(answers.shape, dtype=bool)
        where[:, :n] = bool(pointers)
        features = np.stack([arrays[name] for name in self.probes.nodes], axis=-1)
        return Batch(
            tokens=None,
            answers=torch.from_numpy(answers.astype(np.int64)),
            where=torch.from_numpy(where),
            groups={"nodes": np.full(count, float(n))},
            graph=graph_of(arrays.get("adj"), arrays.get("A"), count, n),
            features=torch.from_numpy(features).float(),
        )

    def outputs(self, batch: Batch) -> list[slice]:
        """The places of every output of the algorithm: the pointers, and each choice."""
        n = batch.num_nodes
        choices = [slice(n + i, n + i + 1) for i in range(len(self.probes.choices))]
        return [slice(0, n)] * len(self.probes.pointers) + choices

    def losses(self, outputs: Float[Tensor, "b q o"], batch: Batch) -> Float[Tensor, "b"]:
        """Outputs count alike, as in the score: a choice as much as all pointers together."""
        parts = [
            answer_losses(outputs[:, places], batch.answers[:, places], batch.where[:, places])
            for places in self.outputs(batch)
        ]
        return torch.stack(parts).mean(dim=0)

    def score(
        self, answers: Shaped[Tensor, "b q *o"], batch: Batch
    ) -> dict[str, Shaped[Tensor, "b"]]:
        right = (answers == batch.answers).float()
        shares = [right[:, places].mean(dim=-1) for places in self.outputs(batch)]
        return super().score(answers, batch) | {"score": torch.stack(shares).mean(dim=0)}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("score", "score", "score"),
            Metric("example_accuracy", "graphs", "example_right"),
        )


def graph_of(
    adj: Shaped[np.ndarray, "b n n"] | None,
    weights: Shaped[np.ndarray, "b n n"] | None,
    count: int,
    n: int,
) -> InputGraph:
    """Every node's edge to itself and its neighbours, along and against the direction of edges.

    An edge carries its weight along and against its direction. Without `adj`, nodes have only the
    edge to themselves.
    """
    own = np.broadcast_to(np.eye(n, dtype=bool), (count, n, n))
    along = own if adj is None else adj > 0
    near = along | along.transpose(0, 2, 1) | own
    width = int(near.sum(axis=-1).max())
    order = (~near).argsort(axis=-1, kind="stable")[..., :width]
    kinds = np.where(along, np.where(along.transpose(0, 2, 1), BOTH, OUT), IN)
    kinds = np.where(near, np.where(own, SELF, kinds), EMPTY)
    categories = np.take_along_axis(kinds, order, axis=-1)
    targets = np.where(categories == EMPTY, -1, order)
    features: Tensor | None = None
    if weights is not None:
        both = np.stack([weights, weights.transpose(0, 2, 1)], axis=-1)
        found = np.take_along_axis(both, order[..., None], axis=-2)
        features = torch.from_numpy(found * (targets >= 0)[..., None]).float()
    return InputGraph(torch.from_numpy(targets), torch.from_numpy(categories), 5, features)
