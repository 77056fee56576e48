"""The relation between two nodes, composed along a path: kinship as in CLUTRR, and groups.

Files are those of CLUTRR (Sinha et al., 2019) without their stories: `train.jsonl` and
`test-<steps>.jsonl`, one object a line with `edges`, `types`, `query` and `target`. Without a file,
examples come from an algebra: a table of what follows from two relations in a row.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import RelationsConfig
from graph_machine.lab.tasks.answers import Answer, Answers, Sure, TextAnswer
from graph_machine.lab.tasks.base import Split
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import CHUNK, GeneratedTask, check_size
from graph_machine.lab.tasks.relation_walks import (
    NONE,
    Example,
    branched,
    grown,
    returned,
    rules_of,
)
from graph_machine.lab.tasks.rows import RowOrder, split_rows, stream_key
from graph_machine.lab.tasks.scores import Grouping, Metric

OTHER, SOURCE, TARGET = range(3)  # tokens: the nodes that are asked about, and the rest

# Kinds of relatives, and their words for men and women.
KIN = {
    "parent": ("father", "mother"),
    "child": ("son", "daughter"),
    "sibling": ("brother", "sister"),
    "spouse": ("husband", "wife"),
    "grandparent": ("grandfather", "grandmother"),
    "grandchild": ("grandson", "granddaughter"),
    "parent's sibling": ("uncle", "aunt"),
    "sibling's child": ("nephew", "niece"),
    "parent-in-law": ("father-in-law", "mother-in-law"),
    "child-in-law": ("son-in-law", "daughter-in-law"),
}
# My parent's sibling, my child's spouse, ...: only what has one answer among the kinds above.
# Siblings are full siblings, and a parent's spouse is a parent.
FOLLOWS = {
    ("parent", "parent"): "grandparent",
    ("parent", "sibling"): "parent's sibling",
    ("parent", "child"): "sibling",
    ("parent", "spouse"): "parent",
    ("child", "child"): "grandchild",
    ("child", "sibling"): "child",
    ("child", "spouse"): "child-in-law",
    ("sibling", "parent"): "parent",
    ("sibling", "child"): "sibling's child",
    ("sibling", "sibling"): "sibling",
    ("sibling", "grandparent"): "grandparent",
    ("sibling", "parent's sibling"): "parent's sibling",
    ("spouse", "parent"): "parent-in-law",
    ("spouse", "child"): "child",
    ("spouse", "grandchild"): "grandchild",
    ("grandparent", "spouse"): "grandparent",
    ("grandchild", "sibling"): "grandchild",
    ("parent's sibling", "parent"): "grandparent",
    ("sibling's child", "sibling"): "sibling's child",
    ("parent-in-law", "spouse"): "parent-in-law",
    ("child-in-law", "child"): "grandchild",
    ("child-in-law", "spouse"): "child",
}


class Algebra(NamedTuple):
    """Relations by word, and what follows from two of them in a row."""

    words: tuple[str, ...]
    table: Int[np.ndarray, "r r"]  # NONE: nothing does
    spouses: bool = False  # kinship: a husband's spouse is a wife


def kinship() -> Algebra:
    """The relations of CLUTRR. The last person of two steps decides between men and women.

    >>> words, table, _ = kinship()
    >>> words[table[words.index("father"), words.index("sister")]]
    'aunt'
    """
    kinds = list(KIN)
    table = np.full((2 * len(kinds), 2 * len(kinds)), NONE)
    for (first, second), found in FOLLOWS.items():
        row, column, result = (2 * kinds.index(kind) for kind in (first, second, found))
        table[row : row + 2, column : column + 2] = [[result, result + 1]] * 2
    return Algebra(tuple(word for both in KIN.values() for word in both), table, spouses=True)


def random_group(points: int, seed: int) -> Algebra:
    """The group that two random permutations generate, its elements in random order.

    >>> algebra = random_group(points=3, seed=0)
    >>> bool((np.sort(algebra.table) == np.arange(len(algebra.words))).all())  # every row once
    True
    """
    rng = np.random.default_rng(stream_key("group", seed))
    generators = [tuple(rng.permutation(points).tolist()) for _ in range(2)]
    elements = {tuple(range(points))}
    while True:
        products = {tuple(g[p] for p in e) for e, g in itertools.product(elements, generators)}
        if products <= elements:
            break
        elements |= products
    listed = sorted(elements)
    order = [listed[i] for i in rng.permutation(len(listed))]
    number = {element: i for i, element in enumerate(order)}
    table = [[number[tuple(b[p] for p in a)] for b in order] for a in order]
    return Algebra(tuple(f"g{i}" for i in range(len(order))), np.array(table))


class RelationsTask(GeneratedTask):
    """Trained on short paths, tested by the number of steps."""

    name = "relations"
    examples_word = "graphs"
    shown_by = ("name_width",)
    text_hint = "edges with relations, then the question: 0-1:father 1-2:sister 0?2"
    config: RelationsConfig
    groupings = (Grouping("steps", "steps"),)
    files: dict[Split, list[Example]] | None = None  # None: examples are made

    @cached_property
    def algebra(self) -> Algebra:
        """The relations and their table."""
        if self.config.algebra == "kinship":
            return kinship()
        return random_group(self.config.points, self.config.data_seed)

    @cached_property
    def rules(self) -> list[list[int]]:
        """What follows from two relations: the table of the algebra, or what a file's rows say."""
        if self.files is None:
            return self.algebra.table.tolist()
        return rules_of(self.files["train"], len(self.algebra.words)).tolist()

    def make_spec(self) -> InputSpec:
        count = len(self.algebra.words)
        return InputSpec(
            num_tokens=3,
            num_outputs=count,
            output="pair",
            node_features=self.config.name_width,
            num_edge_categories=2 * count + 2,  # along and against each relation, self, empty
        )

    @property
    def label(self) -> str:
        return f"{self.config.algebra}-{self.config.train_steps}"

    @property
    def usual_nodes(self) -> int:
        return self.config.train_steps + 1

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("example_accuracy", "relations", "example_right"),)

    @property
    def lengths(self) -> range:
        """Numbers of steps in the test."""
        return range(2, self.config.test_steps + 1)

    def open(self, data: str | None = None, seed: int = 0) -> "RelationsTask":
        """Read the folder `data`; None: examples are made."""
        self.sizes = {"train": 1_000_000, "eval": CHUNK, "test": CHUNK // 2 * len(self.lengths)}
        if data is None:
            super().open(None, seed)
            return self
        folder = Path(data)
        train = self.read(folder / "train.jsonl")
        tests = [folder / f"test-{steps}.jsonl" for steps in self.lengths]
        rows = split_rows(len(train), self.config.data_seed)
        held = rows.eval.tolist()
        learned = [*rows.train.tolist(), *rows.test.tolist()]  # the test has its own files
        self.files = {
            "train": [train[row] for row in learned],
            "eval": [train[row] for row in held],
            "test": [example for path in tests if path.is_file() for example in self.read(path)],
        }
        if not self.files["test"]:
            raise DataError(
                f"There is no test file in {folder}; expected {tests[0].name} and so on."
            )
        self.sizes = {split: len(examples) for split, examples in self.files.items()}
        self.identity = hashlib.sha256(repr(self.files).encode()).hexdigest()[:16]
        self.source = str(folder.absolute())
        return self

    def read(self, path: Path) -> list[Example]:
        """The examples of a file; an error names the line."""
        if not path.is_file():
            raise DataError(f"There is no file {path}; --data takes a folder with train.jsonl.")
        found = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
                edges = [(int(a), int(b)) for a, b in row["edges"]]
                source, target = map(int, row["query"])
                example = self._example(edges, row["types"], (source, target), row["target"])
            except (ValueError, KeyError, TypeError, DataError) as error:
                raise DataError(f"{path}, line {number}: {error!s}") from None
            found.append(example)
        return found

    def _example(
        self, edges: list[tuple[int, int]], types: list[str], query: tuple[int, int], target: str
    ) -> Example:
        words = self.algebra.words
        unknown = [word for word in (*types, target) if word not in words]
        if unknown:
            raise DataError(
                f"the relation '{unknown[0]}' is not one of {', '.join(words)} (task.algebra)."
            )
        nodes = [*itertools.chain.from_iterable(edges), *query]
        if not edges or len(edges) != len(types) or min(nodes) < 0:
            raise DataError("every edge needs two nodes, from 0, and a relation.")
        check_size(max(nodes) + 1)
        return Example(edges, [words.index(word) for word in types], query, words.index(target))

    def path(self, rng: np.random.Generator, steps: int) -> Example:
        """A path of random relations between nodes in random order, and what follows from it."""
        table, spouses = self.algebra.table, self.algebra.spouses
        first = np.flatnonzero((table != NONE).any(axis=1) & (table != NONE).any(axis=0))
        while True:
            types = [int(rng.choice(first))]
            found = types[0]
            for _ in range(steps - 1):
                possible = np.flatnonzero(table[found] != NONE)
                if spouses:
                    marries = possible // 2 == list(KIN).index("spouse")
                    possible = possible[~marries | (possible % 2 != types[-1] % 2)]
                if not len(possible):
                    break
                types.append(int(rng.choice(possible)))
                found = int(table[found, types[-1]])
            if len(types) == steps:
                break
        nodes = rng.permutation(steps + 1).tolist()
        return Example(list(itertools.pairwise(nodes)), types, (nodes[0], nodes[-1]), found)

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        """Paths of 2 to `train_steps` steps; in the test, those of the lengths in turn."""
        del progress
        rng = np.random.default_rng(key)
        lengths = list(range(2, self.config.train_steps + 1) if split != "test" else self.lengths)
        examples = [self.path(rng, lengths[i % len(lengths)]) for i in range(count)]
        if split == "train":
            examples = self.enlarged(examples, rng)
        return self.batch_of(examples, rng)

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        if self.files is None:
            return super().batch(step, batch_size, seed, progress)
        examples = self.files["train"]
        rows = RowOrder(np.arange(len(examples)), seed)(step, batch_size)
        rng = np.random.default_rng(stream_key("names", seed, step))
        return self.batch_of(self.enlarged([examples[row] for row in rows], rng), rng)

    def enlarged(self, examples: list[Example], rng: np.random.Generator) -> list[Example]:
        """Training graphs whose walks are longer, come back to a node, and have side branches.

        Relations and paths in place of edges are those of the same batch.
        """
        if self.config.grown_steps:
            others: dict[int, list[Example]] = {}
            for example in examples:
                if len(example.types) > 1:  # what is put in place of an edge makes a path longer
                    others.setdefault(example.target, []).append(example)
            steps = rng.integers(2, self.config.grown_steps, size=len(examples), endpoint=True)
            pairs = zip(examples, steps.tolist(), strict=True)
            examples = [grown(example, others, most, rng) for example, most in pairs]
        if self.config.returns:
            examples = [returned(e, self.rules, self.config.returns, rng) for e in examples]
        known = np.array([kind for example in examples for kind in example.types])
        drawn = rng.choice(known, size=(len(examples), self.config.branches)).tolist()
        return [branched(e, types, rng) for e, types in zip(examples, drawn, strict=True)]

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        if self.files is None:
            yield from super().split_batches(split, batch_size, limit)
            return
        chosen = self.files[split]
        if limit is not None and limit < len(chosen):
            # Spread over the file: tests are sorted by the number of steps.
            chosen = [chosen[i * len(chosen) // limit] for i in range(limit)]
        for start in range(0, len(chosen), batch_size):
            rng = np.random.default_rng(stream_key("names", self.data_seed, start))
            yield self.batch_of(chosen[start : start + batch_size], rng)

    def batch_of(self, examples: list[Example], rng: np.random.Generator) -> Batch:
        """Examples padded to the largest; every node has an edge to itself, and sees the edges
        that arrive at it and, with `view=both`, those that leave it, as different categories.

        With `view=arriving`, what a node holds cannot depend on what follows it, or on which node
        is asked about: it has to be the relation to the source.
        """
        both = self.config.view == "both"
        count, relations = len(examples), len(self.algebra.words)
        own, empty = 2 * relations, 2 * relations + 1
        sizes = [max(max(map(max, e.edges)), *e.query) + 1 for e in examples]
        n = max(sizes)
        slots = [[[(node, own)] for node in range(size)] for size in sizes]
        for nodes, example in zip(slots, examples, strict=True):
            for (a, b), relation in zip(example.edges, example.types, strict=True):
                nodes[b].append((a, relations + relation))
                if both:
                    nodes[a].append((b, relation))
        width = max(len(slot) for nodes in slots for slot in nodes)
        targets = np.full((count, n, width), -1)
        categories = np.full((count, n, width), empty)
        tokens = np.zeros((count, n), dtype=np.int64)
        for row, (nodes, example) in enumerate(zip(slots, examples, strict=True)):
            for node, slot in enumerate(nodes):
                targets[row, node, : len(slot)], categories[row, node, : len(slot)] = zip(*slot)
            tokens[row, example.query[0]] = SOURCE
            if both:
                tokens[row, example.query[1]] = TARGET
        mask = torch.arange(n) < torch.tensor(sizes)[:, None]
        names = torch.from_numpy(rng.standard_normal((count, n, self.config.name_width))).float()
        steps = np.array([len(example.edges) for example in examples], dtype=np.float64)
        return Batch(
            tokens=torch.from_numpy(tokens),
            answers=torch.tensor([[example.target] for example in examples]),
            where=torch.ones(count, 1, dtype=torch.bool),
            groups={"steps": steps},
            graph=InputGraph(torch.from_numpy(targets), torch.from_numpy(categories), empty + 1),
            node_mask=None if bool(mask.all()) else mask,
            features=names if self.config.name_width else None,
            # The readout takes the edges of the first of two nodes.
            pairs=torch.tensor([[e.query if both else e.query[::-1]] for e in examples]),
        )

    def parse(self, text: str) -> Batch:
        """`0-1:father 1-2:sister 0?2`: 1 is the father of 0, and what is 2 to 0?"""
        edges, types, query = [], [], None
        for word in text.split():
            pair, _, relation = word.partition(":")
            a, _, b = pair.partition("-" if relation else "?")
            if not (a.isdecimal() and b.isdecimal()):
                raise DataError(f"Expected {self.text_hint}, got '{word}'.")
            if relation:
                edges.append((int(a), int(b)))
                types.append(relation)
            else:
                query = (int(a), int(b))
        if query is None:
            raise DataError("The question is missing: two nodes with a question mark, as in 0?2.")
        example = self._example(edges, types, query, self.algebra.words[0])
        return self.batch_of([example], np.random.default_rng(0))

    def text(self, example: Batch) -> str:
        assert example.graph is not None
        assert example.pairs is not None
        words, graph = self.algebra.words, example.graph.expand(len(example))[0]
        kinds = graph.categories - len(words)  # of edges that arrive
        listed = [
            f"{int(graph.targets[node, slot])}-{node}:{words[int(kinds[node, slot])]}"
            for node, slot in ((kinds >= 0) & (kinds < len(words))).nonzero().tolist()
        ]
        source, target = example.pairs[0, 0].tolist()
        if self.config.view == "arriving":
            source, target = target, source
        return " ".join([*listed, f"{source}?{target}"])

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        del example, sure, check
        return TextAnswer(" ".join(self.algebra.words[int(answer)] for answer in answers))
