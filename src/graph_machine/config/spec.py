"""What a model must know about its task: sizes, outputs, alphabet and the kind of input graph."""

from dataclasses import dataclass
from typing import Literal

from graph_machine.config.base import Config, field, require, required

MOST = 10_000_000  # far above anything sensible, see config/model.py


@dataclass(frozen=True)
class InputSpec(Config):
    """Declared by the task, stored beside the weights; the model reads nothing else of a task.

    A model gives `outputs` of shape (b, q, o): q places and o numbers at each. `output` says what
    a place is: a node (q = n), an edge slot (q = n k), the whole graph (q = 1), a pair of nodes
    that comes with the example, or a choice that every node makes, of one of its input edges
    (`slot`: q = n, o = k) or of any node (`pointer`: o = n, q = n + `graph_choices`).

    >>> spec = InputSpec(num_tokens=10, num_outputs=9, num_nodes=81, grid=(9, 9), graph="grid",
    ...                  num_edge_categories=6)
    >>> spec.output
    'node'
    """

    num_tokens: int | None = required(
        "different contents of a node; none: nodes have features only"
    )
    num_outputs: int = required("different answers at a place (numbers, if they are numbers)")
    output: Literal["node", "edge", "slot", "pointer", "graph", "pair"] = field(
        "node",
        "what is answered: nodes, edge slots, a choice of input edge or node, the graph, pairs of "
        "nodes",
    )
    graph_choices: int = field(
        0, "nodes that the whole graph chooses, after the choices of the nodes (pointer)"
    )
    output_kind: Literal["classes", "numbers"] = field(
        "classes", "answers are one of several, or numbers (regression)"
    )
    num_nodes: int | None = field(None, "n, if it is the same in every example")
    learned_places: bool = field(
        True,
        "each of num_nodes positions has its own embedding; false: other sizes fit the weights",
    )
    node_features: int = field(0, "numbers that every node carries, beside a token or without one")
    edge_features: int = field(0, "numbers that every input edge carries, beside its category")
    grid: tuple[int, ...] | None = field(None, "rows and columns, if the nodes form a grid")
    graph: Literal["grid", "sequence", "given"] = field("given", "where input edges come from")
    num_edge_categories: int = field(0, "categories of input edges, `empty` included; 0: none")
    causal: bool = field(False, "no node sees a later one")
    alphabet: str | None = field(None, "one character per token, to read inputs from text")
    answers: str | None = field(None, "one character per output, to write answers as text")
    keeps_givens: bool = field(
        True, "a node whose token has the character of an answer keeps that answer"
    )

    def validate(self) -> None:
        sizes = ("num_tokens", "num_outputs", "num_nodes", "num_edge_categories")
        for name in (*sizes, "node_features", "edge_features"):
            require((getattr(self, name) or 0) <= MOST, f"{name} should be at most {MOST:,}.")
        require(self.num_outputs >= 1, "a spec needs outputs.")
        require(
            (self.num_tokens or 0) >= 1 or (self.num_tokens is None and self.node_features >= 1),
            "a spec needs tokens or node features.",
        )
        for name in ("node_features", "edge_features", "num_edge_categories", "graph_choices"):
            require(getattr(self, name) >= 0, f"{name} should not be negative.")
        require(
            self.graph_choices == 0 or self.output == "pointer",
            "graph_choices needs output=pointer.",
        )
        if self.graph == "grid":
            require(
                self.grid is not None and len(self.grid) == 2 and min(self.grid) >= 1,
                "a grid graph needs grid = (rows, columns).",
            )
            require(
                self.num_nodes == self.grid[0] * self.grid[1] if self.grid else False,
                f"num_nodes should be rows x columns of the grid {self.grid}.",
            )
        for name, size in (("alphabet", self.num_tokens), ("answers", self.num_outputs)):
            text = getattr(self, name)
            require(text is None or len(text) == size, f"{name} should have {size} characters.")

    def given_answers(self) -> tuple[int, ...] | None:
        """Per token the answer that it stands for, -1 for a question; None: nothing is given."""
        if self.alphabet is None or self.answers is None or self.output != "node":
            return None
        return tuple(map(self.answers.find, self.alphabet)) if self.keeps_givens else None
