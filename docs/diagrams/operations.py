"""Tensor operations of both mechanisms, one head (paper, figures of 2.2 and 2.3).

The matrices are computed, not invented: six nodes in a row, each with three edges (itself, left,
right), random queries and features.
"""

import numpy as np
from canvas import Canvas

NODES, SLOTS, WIDTH = 6, 3, 4


def softmax(scores: np.ndarray, axes: tuple[int, ...] = (-1,)) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


class Example:
    """One head of attention and of referral on six nodes in a row (paper, 2.2 and 2.3)."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        kinds = random.normal(size=(SLOTS, WIDTH))  # keys of the kinds self, left, right
        self.queries = kinds[2] * 1.6 + 0.5 * random.normal(size=(NODES, WIDTH))
        self.values = random.normal(size=(NODES, WIDTH))
        self.node_keys = random.normal(size=(NODES, WIDTH))
        self.edge_keys = kinds + 0.2 * random.normal(size=(NODES, SLOTS, WIDTH))
        self.addresses = np.zeros((NODES, SLOTS, NODES))
        for node in range(NODES):
            for slot, step in enumerate((0, -1, 1)):
                target = node + step
                if 0 <= target < NODES:
                    self.addresses[node, slot, target] = 1.0
                else:  # an empty edge: uniform
                    self.addresses[node, slot] = 1 / NODES
        scale = np.sqrt(WIDTH)
        scores = np.einsum("nd,nkd->nk", self.queries, self.edge_keys) / scale
        self.e1_weights = softmax(scores)
        self.mixture = np.einsum("nk,nkm->nm", self.e1_weights, self.addresses)
        self.edge_factors = np.log(np.maximum(self.mixture, 1e-2))
        self.node_factors = self.queries @ self.node_keys.T / scale
        self.weights = softmax(self.edge_factors + self.node_factors)
        self.outs = self.weights @ self.values
        self.e2_factors = np.einsum("nd,mld->nml", self.queries, self.edge_keys) / scale
        logits = (self.edge_factors + self.node_factors)[..., None] + self.e2_factors
        self.e2_weights = softmax(logits, (1, 2))
        self.address_outs = np.einsum("nml,mla->na", self.e2_weights, self.addresses)


def named(
    canvas: Canvas,
    x: float,
    y: float,
    values: np.ndarray,
    tint: str,
    name: str,
    shape: str,
    **how: float,
) -> tuple[float, float]:
    """A matrix with its name above and its shape below; returns its width and height."""
    width, height = canvas.grid(x, y, values, tint, **how)  # type: ignore[arg-type]
    canvas.text(x + width / 2, y - 8, name, tint, style="mono")
    canvas.text(x + width / 2, y + height + 14, shape, "quiet", style="small")
    return width, height


def flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(NODES, -1)


def attention() -> Canvas:
    """Tensor operations of edge-augmented attention, one head."""
    example = Example()
    canvas = Canvas(860, 470, "Edge-augmented attention, one head: tensor operations")
    canvas.text(30, 34, "Edge-augmented attention (one head)", anchor="start", style="title")
    canvas.rect(20, 52, 516, 190)
    canvas.text(
        34, 72, "edge factor: where do my edges point?", "address", anchor="start", style="small"
    )
    canvas.rect(20, 254, 516, 190)
    canvas.text(
        34, 274, "node factor: whose content fits my query?", "node", anchor="start", style="small"
    )
    named(canvas, 42, 112, example.queries, "node", "Q", "n × d")
    canvas.text(116, 158, "·", style="title")
    named(
        canvas,
        132,
        112,
        example.edge_keys.reshape(NODES, -1),
        "edge",
        "K_e1",
        "n × k × d",
        cell=9,
        gap=WIDTH,
    )
    canvas.arrow("M252,154 H298", "quiet")
    canvas.text(276, 144, "softmax", "quiet", style="small")
    canvas.text(276, 172, "over e1", "quiet", style="small")
    named(canvas, 310, 112, example.e1_weights, "weight", "A_e1", "n × k")
    canvas.text(366, 158, "×", style="title")
    named(
        canvas, 382, 124, flat(example.addresses), "address", "P_e", "n × k × n", cell=7, gap=NODES
    )
    canvas.text(556, 144, "mix,", "quiet", style="small")
    canvas.text(556, 172, "log", "quiet", style="small")
    named(canvas, 42, 314, example.queries, "node", "Q", "n × d")
    canvas.text(116, 360, "·", style="title")
    named(canvas, 132, 314, example.node_keys, "node", "K_n2", "n × d")
    named(canvas, 600, 112, example.edge_factors, "address", "F_edge", "n × n")
    named(canvas, 600, 314, example.node_factors, "node", "F_node", "n × n")
    canvas.arrow("M522,154 H592", "address")
    canvas.arrow("M200,356 H592", "node")
    canvas.arrow("M640,216 V232 Q640,247 655,247 H672", "address")
    canvas.text(632, 238, "× t_edge", "address", anchor="end", style="small")
    canvas.arrow("M640,296 V272 Q640,257 655,257 H672", "node")
    canvas.text(632, 274, "× t_node", "node", anchor="end", style="small")
    canvas.circle(686, 252, 12, "+", "weight")
    canvas.arrow("M699,252 H742", "weight")
    canvas.text(720, 240, "softmax", "quiet", style="small")
    named(canvas, 750, 210, example.weights, "weight", "A", "n × n")
    canvas.arrow("M792,316 V344", "quiet")
    canvas.text(800, 334, "× V", "value", anchor="start", style="mono")
    named(canvas, 764, 364, example.outs, "value", "Z", "n × d", cell=13)
    return canvas


def referral() -> Canvas:
    """Tensor operations of edge-centric referral, one head."""
    example = Example()
    canvas = Canvas(860, 500, "Edge-centric referral, one head: tensor operations")
    canvas.text(
        30,
        34,
        "Edge-centric referral (one head makes one new edge of every node)",
        anchor="start",
        style="title",
    )
    named(canvas, 40, 92, example.edge_factors, "address", "F_n2,edge", "n × n")
    named(canvas, 40, 232, example.node_factors, "node", "F_n2,node", "n × n")
    named(canvas, 40, 372, example.queries, "node", "Q", "n × d")
    canvas.text(112, 418, "·", style="title")
    named(
        canvas,
        128,
        384,
        example.edge_keys.reshape(NODES, -1),
        "edge",
        "K_e2",
        "n × k × d",
        cell=9,
        gap=WIDTH,
    )
    canvas.text(40, 64, "which n2? (as in attention)", "quiet", anchor="start", style="small")
    canvas.text(128, 356, "which edge of n2?", "quiet", anchor="start", style="small")
    canvas.arrow("M132,134 H290 Q306,134 306,150 V216", "address")
    canvas.text(214, 126, "× t_n2,edge", "address", style="small")
    canvas.arrow("M132,274 H190 Q220,274 240,250 Q250,234 290,232", "node")
    canvas.text(176, 264, "× t_n2,node", "node", style="small")
    canvas.arrow("M250,400 H290 Q306,400 306,384 V249", "edge")
    canvas.text(316, 342, "× t_e2", "edge", anchor="start", style="small")
    canvas.text(316, 400, "F_e2: n × n × k", "edge", anchor="start", style="small")
    canvas.circle(306, 232, 14, "+", "weight")
    canvas.lines(
        318,
        176,
        ["the first two are the same", "for all k edges of an n2"],
        15,
        fill="quiet",
        anchor="start",
        style="small",
    )
    canvas.arrow("M321,232 H424", "weight")
    canvas.text(372, 224, "softmax", "quiet", style="small")
    canvas.text(372, 250, "over (n2, e2)", "quiet", style="small")
    named(
        canvas,
        436,
        200,
        flat(example.e2_weights),
        "weight",
        "A_e2",
        "n × (n·k)",
        cell=11,
        gap=SLOTS,
    )
    canvas.text(680, 238, "×", style="title")
    turned = example.addresses.reshape(NODES * SLOTS, NODES)
    named(canvas, 706, 92, turned, "address", "P_e", "(n·k) × n", cell=14)
    canvas.arrow("M748,370 V394", "quiet")
    named(canvas, 706, 412, example.address_outs, "address", "Z_p new addresses", "", cell=12)
    canvas.text(786, 452, "n × n", "quiet", anchor="start", style="small")
    canvas.arrow("M540,292 V396", "quiet")
    words = [
        "Z_x  new features:",
        "A_e1 V_e1 + A_n2 V_n2 + A_e2 V_e2",
        "(A_n2 is A_e2 summed over the edges of n2)",
    ]
    canvas.lines(540, 418, words, fill="quiet", style="small")
    return canvas


PICTURES = {"attention": attention, "referral": referral}
