"""Tasks on graphs and sequences: pointer chasing, algorithms, recall, text."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from graph_machine.config.base import field, is_whole, require
from graph_machine.config.task import TaskConfig
from graph_machine.errors import count_of

FAMILIES = ("random", "tree", "grid", "ring")


@dataclass(frozen=True)
class PointersConfig(TaskConfig):
    """Every node points at one node. Which node is reached by following the pointers?

    >>> PointersConfig(nodes=20, train_hops=2, test_hops=8).name
    'pointers'
    """

    name: ClassVar[str] = "pointers"

    stop: Literal["end", "count"] = field(
        "end", "follow to the node that points at itself, or as many hops as every token says"
    )
    nodes: int = field(40, "n")
    train_hops: int = field(4, "most hops in training")
    test_hops: int = field(32, "most hops in testing")
    name_width: int = field(8, "random numbers that identify every node; 0: none")
    data_seed: int = field(0, "seed of the examples")

    ends: ClassVar[int] = 2  # nodes that point at themselves

    def validate(self) -> None:
        require(self.name_width >= 0, "name_width should not be negative.")
        require(
            1 <= self.train_hops <= self.test_hops,
            "train_hops should be at least 1 and test_hops at least train_hops.",
        )
        most = self.test_hops if self.stop == "end" else 1
        require(
            self.nodes >= most + self.ends,
            f"nodes should be at least {most + self.ends}, for chains of {count_of(most, 'hops')}, "
            f"got {self.nodes}.",
        )


@dataclass(frozen=True)
class AlgorithmsConfig(TaskConfig):
    """What an algorithm answers at every node of an undirected graph.

    >>> AlgorithmsConfig(algorithm="paths").name
    'algorithms'
    """

    name: ClassVar[str] = "algorithms"

    algorithm: Literal["bfs", "paths", "components"] = field(
        "bfs",
        "hops from a source; the edge towards it on the shortest path; the component's largest key",
    )
    families: str = field(",".join(FAMILIES), "kinds of random graphs, separated by commas")
    train_nodes: int = field(16, "most nodes of a graph in training")
    test_nodes: str = field("16,32,64,128", "nodes of the graphs in the test, a quarter each")
    parts: int = field(1, "graphs side by side that make up one; above 1 for `components`")
    degree: int = field(7, "most neighbours of a node")
    name_width: int = field(8, "random numbers that identify every node; 0: none")
    data_seed: int = field(0, "seed of the examples")

    @property
    def family_names(self) -> tuple[str, ...]:
        """The families of graphs, one by one."""
        return tuple(word.strip() for word in self.families.split(","))

    @property
    def test_sizes(self) -> tuple[int, ...]:
        """Numbers of nodes that are tested."""
        return tuple(int(word) for word in self.test_nodes.split(","))

    def validate(self) -> None:
        unknown = [name for name in self.family_names if name not in FAMILIES]
        require(not unknown, f"families should be some of {', '.join(FAMILIES)}, got {unknown}.")
        words = [word.strip() for word in self.test_nodes.split(",")]
        require(
            all(is_whole(word) and int(word) >= 2 for word in words),
            f"test_nodes should look like 16,32,64, got '{self.test_nodes}'.",
        )
        require(self.train_nodes >= 4, f"train_nodes should be at least 4, got {self.train_nodes}.")
        fewest = min(self.train_nodes // 2 + 1, *self.test_sizes)
        require(
            1 <= self.parts <= fewest,
            f"parts should be 1 to {fewest}, the nodes of the smallest graph, got {self.parts}.",
        )
        require(self.degree >= 2, f"degree should be at least 2, got {self.degree}.")
        require(self.name_width >= 0, "name_width should not be negative.")


@dataclass(frozen=True)
class RecallConfig(TaskConfig):
    """Multi-query associative recall: key-value pairs, then keys; the answers are their values.

    >>> RecallConfig(length=24, pairs=8, test_pairs=10).name
    'recall'
    """

    name: ClassVar[str] = "recall"

    length: int = field(48, "tokens of a sequence; those after the pairs are queries")
    pairs: int = field(16, "most pairs in training, the fewest are a quarter of them")
    test_pairs: int = field(20, "most pairs in testing")
    keys: int = field(32, "different keys")
    values: int = field(16, "different values")
    data_seed: int = field(0, "seed of the examples")

    def validate(self) -> None:
        require(self.pairs >= 4, f"pairs should be at least 4, got {self.pairs}.")
        require(self.test_pairs >= self.pairs, "test_pairs should be at least pairs.")
        require(self.keys >= self.test_pairs, "keys should be at least as many as test_pairs.")
        require(self.values >= 2, "values should be at least 2.")
        require(
            self.length > 2 * self.test_pairs,
            f"length should be above twice test_pairs ({2 * self.test_pairs}), to leave room.",
        )


@dataclass(frozen=True)
class TextConfig(TaskConfig):
    """The next byte of a text file; without one, of the sources of Python's standard library.

    >>> TextConfig(length=64).name
    'text'
    """

    name: ClassVar[str] = "text"

    length: int = field(128, "bytes of a window")
    most: int = field(8_000_000, "bytes that are read at most")

    def validate(self) -> None:
        require(self.length >= 2, "length should be at least 2.")
        require(self.most >= 100 * self.length, "most should be at least 100 windows.")
