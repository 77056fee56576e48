"""Names of recorded tensors, of their axes, of cells, and the paper's shorthand: all in one place.

A tensor is addressed by its path, `layers.3.edge.0.n2_weights`. The paper (section 3.4) writes
`s0l1e2r` for sample 0, layer 1, edge slot 2 as seen by referral, `s0l1e2a` for the same edge as
seen by attention, `l0r2` for referral head 2 of layer 0, and here `l0a3` is attention head 3.

Samples, layers, slots and heads count from 0. Cells count from 1: the paper says 0-based, but its
`r2c2` "at the center of the top-left box" and its `r5c2` in the middle of a column are 1-based.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from graph_machine.errors import ConfigError

Sublayer = Literal["edge", "node"]

# Last part of a path -> axes. Where a referral kind has fewer axes, the last ones are missing.
_BY_AXES = {
    "sample source slot": "sharpener_temps sharpener_temps_e2",
    "sample source slot target": "address_ins address_ins_e2 address_outs",
    "sample source slot feature": "feature_outs",
    "sample source feature": "node_features",
    "sample head target feature": "n2_values",
    "sample head source": "n2_edge_factor_temps n2_node_factor_temps e2_factor_temps "
    "edge_factor_temps node_factor_temps",
    "sample head source slot": "e1_weights",
    "sample head source target": "n2_edge_factors n2_node_factors edge_factors node_factors "
    "n2_weights weights",
    "sample head source target e2_slot": "e2_factors e2_weights",
    # Here every n2 weighs its own edges, so the axis of nodes is that of targets.
    "sample head target e2_slot": "e2_own_weights",
    "sample node output": "logits",  # of the whole model
}
AXES: dict[str, tuple[str, ...]] = {
    name: tuple(axes.split()) for axes, names in _BY_AXES.items() for name in names.split()
}

# What is a distribution (between 0 and 1, sums to 1) and what is a factor (a logit).
FACTORS = frozenset(name for name in AXES if name.endswith("_factors"))
DISTRIBUTIONS = frozenset(
    name for name in AXES if name.endswith("weights") or name.startswith("address_")
)

_PATH = re.compile(r"(?:(?P<prefix>.+)\.)?layers\.(\d+)\.(edge|node)\.(\d+)\.(\w+)")
_SHORT = re.compile(r"(?:s(\d+))?l(\d+)(?:\.(\d+))?(?:e(\d+)([ra])?|([ra])(\d+))")
_CELL = re.compile(r"r(\d+)c(\d+)")


@dataclass(frozen=True, order=True)
class TensorPath:
    """`layers.3.edge.0.n2_weights`; `prefix` distinguishes several stacks of one model.

    >>> TensorPath.parse("layers.3.edge.0.n2_weights").layer
    3
    """

    layer: int
    sublayer: Sublayer
    index: int
    name: str
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> "TensorPath":
        """A path from its text."""
        match = _PATH.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"'{text}' is not the path of a recorded tensor: expected for example "
                f"layers.3.edge.0.n2_weights."
            )
        prefix, layer, sublayer, index, name = match.groups()
        kind: Sublayer = "edge" if sublayer == "edge" else "node"
        return cls(int(layer), kind, int(index), name, prefix or "")

    def __str__(self) -> str:
        head = f"{self.prefix}." if self.prefix else ""
        return f"{head}layers.{self.layer}.{self.sublayer}.{self.index}.{self.name}"


@dataclass(frozen=True)
class Shorthand:
    """`s0l1e2r`: an edge as a sublayer sees it, or (`l0r2`, `l0a3`) a referral or attention head.

    `sublayer` counts the edge (or node) sublayers of a layer that has several: `l1.1r2`.

    >>> Shorthand.parse("s0l1e2r").path()
    'layers.1.edge.0.address_ins'
    >>> Shorthand.parse("l0r2").path("n2_weights")
    'layers.0.edge.0.n2_weights'
    """

    layer: int
    kind: Literal["edge", "referral", "attention"]
    index: int
    by: Literal["r", "a"] | None = None  # who sees the edge; None for heads
    sample: int | None = None
    sublayer: int = 0

    @classmethod
    def parse(cls, text: str) -> "Shorthand":
        """A shorthand from its text."""
        match = _SHORT.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"'{text}' is not understood: expected for example s0l1e2r (sample 0, layer 1, "
                f"edge 2 in referral; a: in attention), l0r2 (referral head) or l0a3 (attention "
                f"head)."
            )
        sample, layer, sublayer, slot, by, head, index = match.groups()
        common = {"sample": None if sample is None else int(sample), "sublayer": int(sublayer or 0)}
        if slot is not None:
            seen: Literal["r", "a"] = "a" if by == "a" else "r"
            return cls(int(layer), "edge", int(slot), seen, **common)
        return cls(int(layer), "referral" if head == "r" else "attention", int(index), **common)

    def __str__(self) -> str:
        sample = "" if self.sample is None else f"s{self.sample}"
        layer = f"l{self.layer}" + (f".{self.sublayer}" if self.sublayer else "")
        what = {"edge": "e", "referral": "r", "attention": "a"}[self.kind]
        return f"{sample}{layer}{what}{self.index}{self.by or ''}"

    def path(self, name: str | None = None) -> str:
        """The tensor it stands for: address-in, address-out or attention weights unless named."""
        place: Sublayer = "node" if self.kind == "attention" or self.by == "a" else "edge"
        usual = {"edge": "address_ins", "referral": "address_outs", "attention": "weights"}
        return str(TensorPath(self.layer, place, self.sublayer, name or usual[self.kind]))


def axes_of(name: str, ndim: int) -> tuple[str, ...]:
    """Axis names of a tensor by the last part of its path; unknown tensors get numbered axes.

    >>> axes_of("layers.0.edge.0.n2_weights", ndim=4)
    ('sample', 'head', 'source', 'target')
    """
    known = AXES.get(name.rpartition(".")[2], ("sample",))
    if len(known) >= ndim:
        return known[:ndim]
    return known + tuple(f"axis{number}" for number in range(len(known), ndim))


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path, or its last part, fits one of the patterns (`*` and `?` as in a shell)."""
    last = path.rpartition(".")[2]
    return any(fnmatchcase(path, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def cell_name(index: int, cols: int) -> str:
    """`r1c1` is the first cell of a grid with `cols` columns.

    >>> cell_name(4, cols=4)
    'r2c1'
    """
    return f"r{index // cols + 1}c{index % cols + 1}"


def parse_cell(text: str | int, grid: Sequence[int]) -> int:
    """The index of a cell: `r2c2` (from 1), or the index itself (from 0).

    Nodes in one line, which are those of graphs and sequences, are named `n3` (from 0) as well.

    >>> parse_cell("r2c1", grid=(4, 4)), parse_cell("n3", grid=(1, 8))
    (4, 3)
    """
    rows, cols = grid
    node = re.fullmatch(r"n(\d{1,9})", text.strip().lower()) if isinstance(text, str) else None
    if node is not None and rows == 1:
        if int(node[1]) >= cols:
            raise ConfigError(f"Node {text}: there are nodes n0 to n{cols - 1}.")
        return int(node[1])
    if isinstance(text, int) or text.isdigit():
        index = int(text)
        if not 0 <= index < rows * cols:
            raise ConfigError(f"Cell {index}: the board has cells 0 to {rows * cols - 1}.")
        return index
    match = _CELL.fullmatch(text.strip().lower())
    if match is None:
        if rows == 1:
            raise ConfigError(f"'{text}' is not a node: expected for example n3 (from 0).")
        raise ConfigError(f"'{text}' is not a cell: expected for example r2c2 (row 2, column 2).")
    row, col = int(match[1]), int(match[2])
    if not (1 <= row <= rows and 1 <= col <= cols):
        raise ConfigError(f"Cell {text}: the board has cells r1c1 to r{rows}c{cols}.")
    return (row - 1) * cols + col - 1


def paper_cells(rows: int, cols: int, box: Sequence[int] | None = None) -> tuple[int, int, int]:
    """The paper's r2c2, r2c5, r5c2 on any board: a box's centre, middles of row and column."""
    row, col = (rows // 5, cols // 5) if box is None else (box[0] // 2, box[1] // 2)
    return row * cols + col, row * cols + cols // 2, (rows // 2) * cols + col
