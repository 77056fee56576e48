"""Pictures of the paper's section 2.1: representations, layers, sublayers."""

import numpy as np
from canvas import Canvas
from operations import NODES, SLOTS, Example, named


def representations() -> Canvas:
    canvas = Canvas(860, 292, "Node features, edge features and edge addresses")
    random = np.random.default_rng(1)
    example = Example()
    canvas.text(30, 34, "What a Graph Machine keeps for each graph", anchor="start", style="title")
    named(
        canvas, 50, 104, random.random((NODES, 8)), "node", "X_n  node features", "n × d_n", cell=17
    )
    for slot in reversed(range(SLOTS)):
        x, y = 286 + 16 * slot, 104 - 14 * slot
        canvas.rect(x - 6, y - 6, 130, 112, "ground")
        canvas.grid(x, y, random.random((NODES, 7)), "edge", 17)
    canvas.text(362, 62, "X_e  edge features", "edge", style="mono")
    canvas.text(346, 228, "n × k × d_e", "quiet", style="small")
    for slot in reversed(range(SLOTS)):
        x, y = 580 + 16 * slot, 104 - 14 * slot
        canvas.rect(x - 6, y - 6, 114, 112, "ground")
        canvas.grid(x, y, example.addresses[:, slot], "address", 17)
    canvas.text(650, 62, "P_e  edge addresses", "address", style="mono")
    canvas.text(634, 228, "n × k × n", "quiet", style="small")
    canvas.lines(118, 258, ["the state of each node"], fill="quiet", style="small")
    canvas.lines(346, 250, ["what each of a node's k edges carries"], fill="quiet", style="small")
    canvas.lines(
        640,
        250,
        ["where each edge points:", "k soft adjacency matrices; rows sum to 1"],
        fill="quiet",
        style="small",
    )
    return canvas


def layers() -> Canvas:
    canvas = Canvas(860, 284, "Input layer, layers of edge and node sublayers, readout")
    lanes = {"node": (112, "X_n"), "edge": (172, "X_e"), "address": (222, "P_e")}
    canvas.box(128, 92, 92, 152, "input")
    canvas.rect(252, 52, 372, 210, "ground", "quiet", 12)
    canvas.text(438, 76, "layer  × l", "quiet")
    canvas.box(284, 92, 128, 152, "edge sublayer", "edge")
    canvas.box(464, 92, 128, 152, "node sublayer", "node")
    canvas.box(656, 92, 80, 40, "norm")
    canvas.box(764, 92, 76, 40, "linear")
    for tint, (y, name) in lanes.items():
        canvas.arrow(f"M220,{y} H282", tint, 2)
        canvas.arrow(f"M412,{y} H462", tint, 2)
        canvas.text(236, y - 7, name, tint, style="mono")
    canvas.arrow("M592,112 H654", "node", 2)
    canvas.arrow("M736,112 H762", "node", 2)
    canvas.arrow("M802,132 V170", "node", 2)
    canvas.text(802, 190, "logits", "ink")
    canvas.arrow("M592,172 H654", "edge", 1.4, dashed=True)
    canvas.arrow("M592,222 H654", "address", 1.4, dashed=True)
    canvas.text(662, 202, "to the next layer", "quiet", anchor="start", style="small")
    canvas.text(96, 117, "tokens", anchor="end")
    canvas.arrow("M102,112 H126", "quiet")
    canvas.text(96, 203, "input graph", anchor="end")
    canvas.arrow("M102,198 H126", "quiet")
    canvas.text(30, 34, "A layer makes new edges, then uses them", anchor="start", style="title")
    return canvas


def sublayer(kind: str) -> Canvas:
    """An edge or node sublayer: what goes in, the mechanism, the feed-forward network."""
    edge = kind == "edge"
    canvas = Canvas(860, 292, f"The {kind} sublayer")
    title = "Edge sublayer: referral, then a feed-forward network on edge features"
    if not edge:
        title = "Node sublayer: attention, then a feed-forward network on node features"
    canvas.text(30, 34, title, anchor="start", style="title")
    lanes = (
        ("node", 92, "X_n", "norm"),
        ("edge", 152, "X_e", "norm"),
        ("address", 212, "P_e", "sharpen"),
    )
    y, tint = (152, "edge") if edge else (92, "node")
    lift = 30 if edge else 46  # of the residual, which passes behind the mechanism's box
    canvas.arrow(f"M80,{y} V{y - lift} H474 V{y - 13}", tint, 1.3, dashed=True)
    canvas.box(218, 66, 116, 172, "referral" if edge else "attention", "weight")
    for lane, height, name, step in lanes:
        canvas.text(42, height + 5, name, lane, style="mono")
        canvas.arrow(f"M64,{height} H102", lane, 2)
        canvas.box(104, height - 16, 80, 32, step)
        canvas.arrow(f"M184,{height} H216", lane, 2)
    canvas.arrow("M144,258 V230", "edge", 1.4, dashed=True)
    canvas.text(
        158, 272, "temperature from the edge's features", "quiet", anchor="start", style="small"
    )
    canvas.arrow(f"M334,{y} H374", tint, 2)
    canvas.box(376, y - 16, 52, 32, "W_o")
    canvas.arrow(f"M428,{y} H462", tint, 2)
    canvas.circle(474, y, 11, "+", tint)
    canvas.arrow(f"M486,{y} H528", tint, 2)
    canvas.box(530, y - 16, 62, 32, "norm")
    canvas.arrow(f"M592,{y} H618", tint, 2)
    canvas.box(620, y - 16, 82, 32, "SwiGLU")
    canvas.arrow(f"M702,{y} H732", tint, 2)
    canvas.circle(744, y, 11, "+", tint)
    canvas.arrow(f"M756,{y} H800", tint, 2)
    canvas.text(822, y + 5, "X_e" if edge else "X_n", tint, style="mono")
    canvas.arrow(f"M500,{y} V{y - 30} H744 V{y - 13}", tint, 1.3, dashed=True)
    if edge:
        canvas.arrow("M334,212 H800", "address", 2)
        canvas.text(822, 217, "P_e", "address", style="mono")
        canvas.text(566, 234, "replaced: the k heads are the k new edges", "quiet", style="small")
        canvas.text(566, 96, "X_n is only read", "quiet", style="small")
    else:
        canvas.text(566, 186, "X_e and P_e are only read", "quiet", style="small")
    return canvas


PICTURES = {
    "representations": representations,
    "layers": layers,
    "edge-sublayer": lambda: sublayer("edge"),
    "node-sublayer": lambda: sublayer("node"),
}
