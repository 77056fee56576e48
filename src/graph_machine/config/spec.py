"""What a model must know of its task: sizes, alphabet and the kind of input graph."""

from dataclasses import dataclass
from typing import Literal

from graph_machine.config.base import Config, field, require


@dataclass(frozen=True)
class InputSpec(Config):
    """Declared by the task, stored beside the weights; the model reads nothing else of a task."""

    num_tokens: int = field(10, "different contents of a node, blank included")
    num_outputs: int = field(9, "different answers at a node")
    num_nodes: int | None = field(81, "n, if nodes are places with embeddings of their own")
    grid: tuple[int, ...] | None = field((9, 9), "rows and columns, if the nodes form a grid")
    graph: Literal["grid", "sequence", "given"] = field("grid", "where input edges come from")
    num_edge_categories: int = field(6, "categories of input edges, `empty` included")
    causal: bool = field(False, "no node sees a later one")
    alphabet: str | None = field(None, "one character per token, to read inputs from text")
    answers: str | None = field(None, "one character per output, to write answers as text")

    def validate(self) -> None:
        require(self.num_tokens >= 1 and self.num_outputs >= 1, "a spec needs tokens and outputs.")
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
