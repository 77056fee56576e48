"""What a run is, as frozen data: task, training and all of it together. Imports no torch.

Your own task is a subclass of `TaskConfig` with its own `name` and fields.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from graph_machine.config.base import Bounds, Config, field, require
from graph_machine.config.model import ModelConfig
from graph_machine.errors import ConfigError, GraphMachineError, count_of
from graph_machine.registry import Registry

T = TypeVar("T", bound="TaskConfig")


MAX_SIDE = 25  # of a board: a cell is one character

# Ranges that several settings have.
FROM_1, FROM_0, ABOVE_0 = Bounds(1), Bounds(0), Bounds(0, above=True)
SHARE, SHARE_ABOVE_0, BELOW_1 = Bounds(0, 1), Bounds(0, 1, above=True), Bounds(0, 1, below=True)
SPLIT = Bounds(20)  # examples that can be split

TASK_CONFIGS: Registry[type["TaskConfig"]] = Registry("task", from_users=True)


@dataclass(frozen=True)
class TaskConfig(Config):
    """Base of task configs; `name` finds the subclass again when a config is read from JSON.

    >>> TASK_CONFIGS["sudoku"].name
    'sudoku'
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("name"):  # a variant that inherits its name has the place of neither
            TASK_CONFIGS.add(cls.name, cls)

    def check(self) -> None:
        """Raise ConfigError where settings contradict each other, when a run begins.

        Unlike `validate`, which sees every change: settings are given one by one.
        """

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **super().to_dict()}

    @classmethod
    def from_dict(cls: type[T], data: Any) -> T:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ConfigError("A task should be an object with a name.")
        values = dict(data)
        kind = TASK_CONFIGS[values.pop("name")]
        return super(TaskConfig, kind).from_dict(values)  # type: ignore[return-value]


MOST_NUMBERS = 10_000


def parse_numbers(text: str, what: str = "numbers", least: int = 0) -> tuple[int, ...]:
    """Numbers as a user types them, in the order given, each once.

    >>> parse_numbers("0,2,5-7")
    (0, 2, 5, 6, 7)
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        span = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not 0 < len(span) <= MOST_NUMBERS or span.start < least:
            wanted = f"at most {MOST_NUMBERS:,} numbers from {least}, such as 4,8,16 or 5-7"
            raise ConfigError(f"{what} '{text}': expected {wanted}.")
        found |= dict.fromkeys(span)
    return tuple(found)


def parse_box(text: str, error: type[GraphMachineError] = ConfigError) -> tuple[int, int]:
    """Rows and columns of a box such as `2x3`: the one reader of box shapes, and their bounds."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*[xX×]\s*([0-9]{1,9})\s*", text)
    if match is None:
        raise error(f"Box shape '{text}': expected ROWSxCOLS, for example 3x3 or 2x3.")
    rows, cols = int(match[1]), int(match[2])
    if min(rows, cols) < 2 or rows * cols > MAX_SIDE:
        raise error(
            f"Box shape {rows}x{cols}: rows and columns must be at least 2 and their product at "
            f"most {MAX_SIDE}."
        )
    return rows, cols


@dataclass(frozen=True)
class SudokuConfig(TaskConfig):
    """Sudoku of any box shape; `puzzles`, `clues_extra` and `data_seed` say what is generated.

    >>> SudokuConfig(box="2x3", puzzles=10_000).box
    '2x3'
    """

    name: ClassVar[str] = "sudoku"

    box: str = field("3x3", "rows x columns of a box; the board's side is their product")
    augment: Literal["none", "relabel", "all"] = field(
        "none", "training puzzles: unchanged, digits relabelled, or also lines moved"
    )
    puzzles: int = field(100_000, "puzzles to generate where no data file is given", SPLIT)
    clues_extra: int = field(0, "clues put back into generated (minimal) puzzles", FROM_0)
    data_seed: int = field(0, "seed of the generated puzzles")
    clues_start: int = field(
        0, "most clues put back into a training puzzle at the start, shrinking to clues_end", FROM_0
    )
    clues_end: int = field(0, "most clues put back from the end of clues_ramp on", FROM_0)
    clues_ramp: float = field(0.5, "share of the steps over which they shrink", SHARE_ABOVE_0)

    @property
    def box_shape(self) -> tuple[int, int]:
        """Rows and columns of a box."""
        return parse_box(self.box)

    def validate(self) -> None:
        parse_box(self.box)

    def check(self) -> None:
        rows, cols = self.box_shape
        cells = (rows * cols) ** 2
        require(
            self.clues_start <= cells,
            f"task.clues_start = {self.clues_start} should be at most the {cells} cells of a board "
            f"with boxes of {self.box}.",
        )
        require(
            self.clues_end <= self.clues_start,
            f"task.clues_end = {self.clues_end} should be at most task.clues_start = "
            f"{self.clues_start}.",
        )


SMALLEST_MAZE, LARGEST_MAZE = 4, 64  # sides


@dataclass(frozen=True)
class JigsawConfig(TaskConfig):
    """Sudoku whose regions differ from puzzle to puzzle.

    >>> JigsawConfig(side=6).name
    'jigsaw'
    """

    name: ClassVar[str] = "jigsaw"
    OLD_NAMES: ClassVar[dict[str, str]] = {"told": "regions_in_tokens"}

    side: int = field(6, "rows and columns of a board, and cells of a region", Bounds(3, MAX_SIDE))
    regions_in_tokens: bool = field(
        False, "every token also contains the region of its cell (a baseline)"
    )
    augment: Literal["none", "relabel", "all"] = field(
        "none", "training puzzles: unchanged, digits relabelled, or boards also turned and mirrored"
    )
    puzzles: int = field(59_000, "puzzles to generate where no data file is given", SPLIT)
    clues_extra: int = field(
        8, "clues put back into generated (minimal) puzzles, 0 to this many", FROM_0
    )
    data_seed: int = field(0, "seed of the generated puzzles")


@dataclass(frozen=True)
class MazeConfig(TaskConfig):
    """The shortest path through a maze on a grid of cells.

    >>> MazeConfig(side=11).name
    'maze'
    """

    name: ClassVar[str] = "maze"

    side: int = field(
        9, "rows and columns of cells, walls included", Bounds(SMALLEST_MAZE, LARGEST_MAZE)
    )
    loops: float = field(
        0.05, "share of the walls between two passages that are opened again", SHARE
    )
    shortest: int | None = field(None, "fewest steps of a path; none: the side of the maze")
    learned_places: bool = field(
        False, "every cell has an embedding of its place; without, a model takes mazes of any side"
    )
    mazes: int = field(50_000, "mazes to generate where no data file is given", SPLIT)
    data_seed: int = field(0, "seed of the generated mazes")

    @property
    def fewest_steps(self) -> int:
        """Steps of the shortest path that a maze may have."""
        return self.side if self.shortest is None else self.shortest

    def validate(self) -> None:
        require(
            1 <= self.fewest_steps <= 2 * self.side,
            f"shortest should be 1 to twice the side ({2 * self.side}), got {self.fewest_steps}.",
        )


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
    name_width: int = field(8, "random numbers that identify every node; 0: none", FROM_0)
    data_seed: int = field(0, "seed of the examples")

    ends: ClassVar[int] = 2  # nodes that point at themselves

    def validate(self) -> None:
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
    train_nodes: int = field(16, "most nodes of a graph in training", Bounds(4))
    test_nodes: str = field("16,32,64,128", "nodes of the graphs in the test, a quarter each")
    parts: int = field(1, "graphs side by side that make up one; above 1 for `components`")
    degree: int = field(7, "most neighbours of a node", Bounds(2))
    name_width: int = field(8, "random numbers that identify every node; 0: none", FROM_0)
    long: float = field(
        0.0, "share of long training graphs, searched from one end, and of the largest", SHARE
    )
    most_scale: float = field(
        1.0, "in training, the weights of a graph are multiplied by 1 to this number", FROM_1
    )
    data_seed: int = field(0, "seed of the examples")

    @property
    def family_names(self) -> tuple[str, ...]:
        """The families of graphs, one by one."""
        return tuple(word.strip() for word in self.families.split(","))

    @property
    def test_sizes(self) -> tuple[int, ...]:
        """Numbers of nodes that are tested."""
        return parse_numbers(self.test_nodes, "test_nodes", least=2)

    def validate(self) -> None:
        unknown = [name for name in self.family_names if name not in FAMILIES]
        require(not unknown, f"families should be some of {', '.join(FAMILIES)}, got {unknown}.")
        fewest = min(self.train_nodes // 2 + 1, *self.test_sizes)
        require(
            1 <= self.parts <= fewest,
            f"parts should be 1 to {fewest}, the nodes of the smallest graph, got {self.parts}.",
        )


@dataclass(frozen=True)
class RecallConfig(TaskConfig):
    """Multi-query associative recall: key-value pairs, then keys; the answers are their values.

    >>> RecallConfig(length=24, pairs=8, test_pairs=10).name
    'recall'
    """

    name: ClassVar[str] = "recall"

    length: int = field(48, "tokens of a sequence; those after the pairs are queries")
    pairs: int = field(16, "most pairs in training, the fewest are a quarter of them", Bounds(4))
    test_pairs: int = field(20, "most pairs in testing")
    keys: int = field(32, "different keys")
    values: int = field(16, "different values", Bounds(2))
    data_seed: int = field(0, "seed of the examples")

    def validate(self) -> None:
        require(self.test_pairs >= self.pairs, "test_pairs should be at least pairs.")
        require(self.keys >= self.test_pairs, "keys should be at least as many as test_pairs.")
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

    length: int = field(128, "bytes of a window", Bounds(2))
    most: int = field(8_000_000, "bytes that are read at most")

    def validate(self) -> None:
        require(self.most >= 100 * self.length, "most should be at least 100 windows.")


@dataclass(frozen=True)
class ClrsConfig(TaskConfig):
    """An algorithm of the benchmark CLRS-30, without hints.

    >>> ClrsConfig(algorithm="dijkstra").name
    'clrs'
    """

    name: ClassVar[str] = "clrs"
    algorithm: Literal[
        "bfs", "bellman_ford", "dijkstra", "mst_prim", "dag_shortest_paths",
        "strongly_connected_components", "topological_sort", "minimum",
    ] = field("bfs", "what is computed")  # fmt: skip
    random_positions: bool = field(True, "in training, positions are random, in the same order")
    first_at_zero: bool = field(False, "the first of the random positions is 0, as in the files")
    least_scale: float = field(
        1.0, "in training, weights of a graph are multiplied by this to 1", SHARE_ABOVE_0
    )


@dataclass(frozen=True)
class RelationsConfig(TaskConfig):
    """The relation between two nodes that follows from those along a path between them.

    >>> RelationsConfig(algebra="group").name
    'relations'
    """

    name: ClassVar[str] = "relations"
    algebra: Literal["kinship", "group"] = field("kinship", "as in CLUTRR, or a random group")
    points: int = field(4, "points that the elements of the group permute, 2 to 5", Bounds(2, 5))
    train_steps: int = field(3, "most steps of a path in training, from 2")
    test_steps: int = field(10, "most steps of a path in the test, from 2")
    view: Literal["both", "arriving"] = field(
        "both", "edges that a node sees; with `arriving`, only the first node of two is marked"
    )
    branches: int = field(0, "edges to or from new nodes, which training graphs get", FROM_0)
    grown_steps: int = field(0, "most steps that paths in place of edges add up to", FROM_0)
    returns: float = field(0.0, "share of training walks that come back if they can", SHARE)
    name_width: int = field(8, "random numbers that identify every node; 0: none", FROM_0)
    data_seed: int = field(0, "seed of the group and of the examples")

    def validate(self) -> None:
        require(2 <= self.train_steps <= self.test_steps, "2 <= train_steps <= test_steps.")


@dataclass(frozen=True)
class TrainConfig(Config):
    """Defaults are the paper's recipe; the second group says how it is carried out.

    >>> TrainConfig(steps=500, batch_size=64).peak_lr
    0.001
    """

    OLD_NAMES: ClassVar[dict[str, str]] = {
        "eval_puzzles": "eval_examples",
        "test_puzzles": "test_examples",
    }

    steps: int = field(100_000, "optimiser steps", FROM_1)
    batch_size: int = field(64, "examples per step, over all processes together", FROM_1)
    peak_lr: float = field(1e-3, "learning rate after warm-up", ABOVE_0)
    warmup: float = field(0.01, "share of the steps spent in linear warm-up", BELOW_1)
    final_lr: float = field(0.1, "learning rate at the end, as a share of the peak", SHARE)
    optimizer: Literal["adam", "adamw", "muon"] = field(
        "adam", "adam (the paper's), adamw, or muon for matrices with AdamW for the rest"
    )
    weight_decay: float = field(0.0, "decoupled weight decay of adamw and muon", FROM_0)
    beta1: float = field(0.9, "Adam's first beta", BELOW_1)
    beta2: float = field(0.95, "Adam's second beta", BELOW_1)
    clip_norm: float = field(1.0, "largest gradient norm", ABOVE_0)
    entropy_weight: float = field(
        1e-3, "weight of each entropy loss at the start, annealed linearly to 0; 0: off", FROM_0
    )
    entropy_of: Literal["factors", "raw"] = field(
        "factors", "entropy losses see the factors after their temperatures, or raw (dense spaces)"
    )
    policy_entropy: float = field(
        1e-2, "entropy bonus for the choices of the hard address space; 0: off", FROM_0
    )

    rounds_min: int | None = field(
        None, "fewest rounds of a step, drawn up to the most; none: always the most", FROM_1
    )
    rounds_start: int | None = field(
        None, "most rounds at the start, growing to model.rounds; none: model.rounds", FROM_1
    )
    rounds_ramp: float = field(
        0.5, "share of the steps over which the most rounds grow", SHARE_ABOVE_0
    )
    grad_rounds: int | None = field(
        None, "gradients flow only through this many last rounds; none: through all", FROM_1
    )
    round_loss: Literal["all", "last", "growing"] = field(
        "all",
        "rounds with gradients in the loss: all equally, the last, or weighted 1, 2, 3, ...",
    )
    layer_loss: float = field(
        0.0, "weight of the mean loss of answers that are read out between layers; 0: off", FROM_0
    )
    ema: float = field(
        0.0, "decay of a moving average of the weights, which is then tested; 0: off", BELOW_1
    )
    freeze: str = field("", "parts that are not trained, such as stack or nodes,stack.layers.0")

    precision: Literal["auto", "float32", "bfloat16"] = field(
        "auto", "autocast; auto: bfloat16 where it is faster on the device"
    )
    backend: Literal["auto", "reference", "fused"] = field("auto", "implementation of the ops")
    compile: bool = field(False, "torch.compile the model")
    checkpoint_layers: bool = field(False, "recompute activations in the backward pass")
    accumulate: int = field(1, "micro-batches per step", FROM_1)
    log_every: int = field(50, "steps between metric lines", FROM_1)
    eval_every: int = field(1_000, "steps between evaluations on the eval split", FROM_1)
    eval_examples: int = field(4_096, "eval examples used during training", FROM_1)
    test_examples: int | None = field(
        None, "test examples used at the end; none: all of them", FROM_1
    )
    test_rounds: str = field("", "rounds that the final model is also tested with, such as 2,4,8")
    save_every: int = field(1_000, "steps between checkpoints", FROM_1)

    def validate(self) -> None:
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size {self.batch_size} should be a multiple of accumulate {self.accumulate}.",
        )
        require(
            self.optimizer != "adam" or self.weight_decay == 0,
            f"weight_decay {self.weight_decay} needs optimizer=adamw or muon: adam has none.",
        )
        _ = self.rounds_tested  # numbers that cannot be read are found here

    @property
    def rounds_tested(self) -> tuple[int, ...]:
        """The numbers of `test_rounds`."""
        return parse_numbers(self.test_rounds, "train.test_rounds", 1) if self.test_rounds else ()


@dataclass(frozen=True)
class ExperimentConfig(Config):
    """One condition. Seeds are not part of it: a condition is run with several.

    >>> config = ExperimentConfig().with_model(num_layers=6).with_train(steps=500)
    >>> config.set("train.peak_lr", "2e-3").train.peak_lr
    0.002
    """

    model: ModelConfig = field(ModelConfig(), "what the model is")
    task: TaskConfig = field(SudokuConfig(), "what it learns")
    train: TrainConfig = field(TrainConfig(), "how it learns")

    def validate(self) -> None:
        require(
            self.train.entropy_of == "factors" or self.model.address_space in ("weight", "logit"),
            f"train.entropy_of=raw needs a dense address space, got {self.model.address_space}.",
        )

    def with_model(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of the model."""
        return self.replace(model=self.model.replace(**changes))

    def with_task(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of the task."""
        return self.replace(task=self.task.replace(**changes))

    def with_train(self, **changes: object) -> "ExperimentConfig":
        """A copy with other settings of training."""
        return self.replace(train=self.train.replace(**changes))
