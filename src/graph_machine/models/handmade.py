"""A Graph Machine built by hand, without training: it implements the paper's 1-2-4 construction.

Its weights are set so that each layer does one known thing (paper, section 3.4), for every cell of
a Sudoku board with boxes of 2 or 3 cells a side. It tests the tools: detectors, figures and
explorer must show exactly these regions. New edges of layer

    0   up, down, left, right reach 2 cells; box and col hold the cell's column inside its box,
        row its row inside its box, fetched from the middle cell of that bar
    1   jumps of 4; box is complete; row and col join what lies 2 cells to either side, which
        completes them in the middle cells
    2   jumps of 8; row and col join what lies 4 cells to either side: complete everywhere
    3   row and col are fetched from the middle cells, found by the node factor
    4   slot `up` becomes the cross (row and column), through self-referral
    5   slot `down` becomes cross + box

Attention head h looks along slot h with its edge factor and for digit h + 1 with its node factor;
in the last layer heads box, row and col gather digits, and the readout answers with the digits
that were not seen. It solves naked singles; its confidence is one over the number of candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.models.graph_machine import GraphMachine
from graph_machine.nn import EdgeSublayer, NodeSublayer
from graph_machine.nn.taps import tapped_paths

SLOTS = ("self", "up", "down", "left", "right", "box", "row", "col")
NUM_SLOTS = len(SLOTS)
NUM_LAYERS = 6
SELF, UP, DOWN, LEFT, RIGHT, BOX, ROW, COL = range(NUM_SLOTS)
MIDDLE_LAYER, CROSS_LAYER, CROSS_BOX_LAYER = 3, 4, 5

STRONG = 40.0  # score of a wanted edge; unwanted ones have 0, a stand-in has half
EDGE_TEMP = 4.0  # of the n2 edge factor, as the trained models of the paper have it high
DIGIT_SCORE = 4.0  # of the node factor in attention
ANSWER_SCORE = 200.0


@dataclass
class Wish:
    """The query of one referral head: scores of e1 and e2 by kind of slot, for every cell.

    Scores are (slot, row or col one-hot): queries are linear in the one-hots of a cell's row and
    column, so a wish may depend on either. `provider` names the axis whose middle cell is fetched.
    """

    side: int
    e1: Tensor = field(init=False)
    e2: Tensor = field(init=False)
    provider: int | None = None  # 0: the middle of my row, 1: of my column

    def __post_init__(self) -> None:
        self.e1 = torch.zeros(NUM_SLOTS, 2 * self.side)
        self.e2 = torch.zeros(NUM_SLOTS, 2 * self.side)

    def find(self, slot: int, score: float = 1.0, rows: Sequence[int] | None = None) -> "Wish":
        """Look for n2 along `slot`; in some rows only, if they are given."""
        self.e1[slot, list(range(self.side)) if rows is None else list(rows)] = score * STRONG
        return self

    def find_in_cols(self, slot: int, cols: Sequence[int]) -> "Wish":
        self.e1[slot, [self.side + col for col in cols]] = STRONG
        return self

    def collect(self, *slots: int, score: float = 1.0) -> "Wish":
        """Take these edges of n2."""
        self.e2[list(slots), : self.side] = score * STRONG
        return self


def handmade_gm(box: tuple[int, int] = (3, 3)) -> GraphMachine:
    """The hand-built GM for boards with boxes of `box` = (rows, columns) cells, 2 or 3 each."""
    if not all(size in (2, 3) for size in box):
        raise ConfigError(f"handmade_gm: boxes should be 2 or 3 cells a side, got {box}.")
    side = box[0] * box[1]
    spec = InputSpec(
        num_tokens=side + 1,
        num_outputs=side,
        num_nodes=side * side,
        grid=(side, side),
        graph="grid",
        num_edge_categories=6,
        alphabet=".123456789"[: side + 1],
        answers="123456789"[:side],
    )
    config = ModelConfig(
        d_node=4 * side + 1,
        d_edge=NUM_SLOTS,
        num_edges=NUM_SLOTS,
        num_heads=NUM_SLOTS,
        num_layers=NUM_LAYERS,
        d_attn_key=NUM_SLOTS + side + 1,
        d_attn_value=side,
        d_ref_key=2 * NUM_SLOTS + side + 1,
        expansion=1,
        edge_residual=False,
    )
    model = GraphMachine(config, spec)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _set_ends(model, side)
        for path, sublayer in tapped_paths(model).items():
            if isinstance(sublayer, EdgeSublayer):
                layer = int(path.split(".")[1])
                _set_edge_sublayer(sublayer, layer_wishes(layer, box), side)
            elif isinstance(sublayer, NodeSublayer):
                layer = int(path.split(".")[1])
                _set_node_sublayer(sublayer, side, last=layer == NUM_LAYERS - 1)
    return model.eval()


def layer_wishes(layer: int, box: tuple[int, int]) -> list[Wish]:
    """The queries of the eight heads of a layer, slot by slot."""
    side = box[0] * box[1]
    wishes = [Wish(side).find(SELF).collect(slot) for slot in range(NUM_SLOTS)]  # keep the old edge
    for slot in (UP, DOWN, LEFT, RIGHT):
        jump = Wish(side).find(slot).collect(slot)
        # At the border there is no such input edge: the cell itself stands in.
        wishes[slot] = jump.find(SELF, 0.5).collect(SELF, score=0.5) if layer == 0 else jump
    if layer == 0:
        wishes[BOX], wishes[COL] = (_bar(box[0], side, vertical=True) for _ in range(2))
        wishes[ROW] = _bar(box[1], side, vertical=False)
    elif layer == 1:
        wishes[BOX] = Wish(side).find(BOX).collect(ROW)
    if layer in (1, 2):
        reach = 2**layer
        # Where the jump stays on the board; the middle cells have all of their line after layer 1.
        done = {side // 2} if layer == 2 else set()
        before = sorted(set(range(reach, side)) - done)
        after = sorted(set(range(side - reach)) - done)
        row = Wish(side).find(SELF).find_in_cols(LEFT, before).find_in_cols(RIGHT, after)
        wishes[ROW] = row.collect(ROW)
        col = Wish(side).find(SELF).find(UP, rows=before).find(DOWN, rows=after)
        wishes[COL] = col.collect(COL)
    if layer == MIDDLE_LAYER:
        wishes[ROW], wishes[COL] = (
            Wish(side, provider=axis).collect(slot) for axis, slot in enumerate((ROW, COL))
        )
    if layer >= CROSS_LAYER:
        wishes[UP] = Wish(side).find(SELF)
        wishes[UP].collect(*((ROW, COL) if layer == CROSS_LAYER else (UP,)))
    if layer == CROSS_BOX_LAYER:
        wishes[DOWN] = Wish(side).find(SELF).collect(ROW, COL, BOX)
    return wishes


def _bar(length: int, side: int, *, vertical: bool) -> Wish:
    """The bar of a box's column (or row): its middle cell's edges to both sides and to itself."""
    back, forth = (UP, DOWN) if vertical else (LEFT, RIGHT)
    wish = Wish(side)
    # From place i of the bar, one step leads to the provider: its middle, or the first of two.
    steps = (SELF, back) if length == 2 else (forth, SELF, back)
    for place, step in enumerate(steps):
        cells = range(place, side, length)
        wish = wish.find(step, rows=cells) if vertical else wish.find_in_cols(step, cells)
    return wish.collect(SELF, forth) if length == 2 else wish.collect(back, SELF, forth)


def _set_ends(model: GraphMachine, side: int) -> None:
    """One-hots of row, column and digit (0: blank) in; 'not seen, or given' out."""
    assert model.nodes.position is not None
    assert model.edges is not None
    assert model.edges.category is not None
    cells = torch.arange(side * side)
    model.nodes.position.weight[cells, cells // side] = 1.0
    model.nodes.position.weight[cells, side + cells % side] = 1.0
    tokens = torch.arange(side + 1)
    model.nodes.content.weight[tokens, 2 * side + tokens] = 1.0
    kinds = torch.arange(5)  # self, up, down, left, right; empty edges have no features
    model.edges.category.weight[kinds, kinds] = 1.0
    model.norm.weight.fill_(1.0)
    digits = torch.arange(side)
    model.readout.weight[digits, 2 * side + 1 + digits] = ANSWER_SCORE
    model.readout.weight[digits, 3 * side + 1 + digits] = -ANSWER_SCORE


def _raw_temp(value: float) -> float:
    """The x for which softplus(x + ln(e - 1)) is this temperature."""
    return math.log(math.expm1(value)) - math.log(math.e - 1)


def _set_norms(sublayer: EdgeSublayer | NodeSublayer, side: int) -> None:
    # A cell has three ones (row, column, digit) and an edge one: these scales undo the norms.
    sublayer.node_norm.weight.fill_(math.sqrt(3 / (4 * side + 1)))
    sublayer.edge_norm.weight.fill_(math.sqrt(1 / NUM_SLOTS))


def _set_edge_sublayer(sublayer: EdgeSublayer, wishes: list[Wish], side: int) -> None:
    _set_norms(sublayer, side)
    referral = sublayer.referral
    nodes, edges = referral.from_nodes.weights(), referral.from_edges.weights()
    rows, cols = slice(0, side), slice(side, 2 * side)
    slots = torch.arange(NUM_SLOTS)
    first, second, third = 0, NUM_SLOTS, 2 * NUM_SLOTS  # e1, e2 and node part of a key
    scale = math.sqrt(2 * NUM_SLOTS + side + 1)
    for head, wish in enumerate(wishes):
        edges["e1_keys"][head, first + slots, slots] = 1.0
        edges["e2_keys"][head, second + slots, slots] = 1.0
        nodes["queries"][head, first:second, : 2 * side] = scale * wish.e1
        nodes["queries"][head, second:third, : 2 * side] = scale * wish.e2
        nodes["values"][head, head, rows] = 1.0  # a new edge carries the kind of its slot
        edge_temp, node_temp = EDGE_TEMP, 1.0
        if wish.provider is not None:
            own, other = (rows, cols) if wish.provider == 0 else (cols, rows)
            places = torch.arange(side)
            nodes["queries"][head, third + places, own.start + places] = scale * STRONG
            nodes["queries"][head, third + side, own] = scale * STRONG
            nodes["keys"][head, third + places, own.start + places] = 1.0
            nodes["keys"][head, third + side, other.start + side // 2] = 1.0
            edge_temp = 1e-9
        for name, value in (("n2_edge", edge_temp), ("n2_node", node_temp), ("e2", 1.0)):
            nodes[f"{name}_temps"][head, 0, rows] = _raw_temp(value)
    referral.out.weight.copy_(torch.eye(NUM_SLOTS))


def _set_node_sublayer(sublayer: NodeSublayer, side: int, *, last: bool) -> None:
    _set_norms(sublayer, side)
    attention = sublayer.attention
    assert attention.from_edges is not None
    nodes, edges = attention.from_nodes.weights(), attention.from_edges.weights()
    rows = slice(0, side)
    slots, digits = torch.arange(NUM_SLOTS), torch.arange(side)
    scale = math.sqrt(NUM_SLOTS + side + 1)
    for head in range(NUM_SLOTS):
        edges["keys"][head, slots, slots] = 1.0
        nodes["queries"][head, head, rows] = scale * STRONG
        gathers = last and head in (BOX, ROW, COL)
        if not gathers:
            tokens = torch.arange(side + 1)
            nodes["keys"][head, NUM_SLOTS + tokens, 2 * side + tokens] = 1.0
            nodes["queries"][head, NUM_SLOTS + 1 + head % side, rows] = scale * DIGIT_SCORE
        else:
            nodes["values"][head, digits, 2 * side + 1 + digits] = 1.0
            attention.out.weight[3 * side + 1 + digits, head * side + digits] = 1.0
