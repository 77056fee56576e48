"""Pictures of the concepts pages: an edge, referral in three steps, the overview."""

from itertools import pairwise

import numpy as np
from canvas import Canvas

NAMES = "ABCDEFGH"


def bars(canvas: Canvas, x: float, y: float, weights: list[float], height: float = 44) -> None:
    """An address: one bar for each target node."""
    for target, weight in enumerate(weights):
        tall = max(2.0, weight * height)
        canvas.rect(x + target * 30, y + height - tall, 20, tall, "address", None, 2)
        canvas.text(x + target * 30 + 10, y + height + 15, NAMES[target], "quiet", style="small")
    canvas.arrow(f"M{x - 6},{y + height + 1} h{30 * len(weights)}", "line", 1, head=False)


def edge() -> Canvas:
    """One node with its edge slots: features and addresses."""
    canvas = Canvas(860, 372, "A node with four edge slots; each slot has features and an address")
    canvas.text(30, 34, "One node, four edge slots (k = 4)", anchor="start", style="title")
    canvas.text(392, 66, "features: d_e numbers", "edge")
    canvas.text(652, 66, "address: a distribution over all n nodes", "address")
    canvas.circle(80, 210, 30, "C")
    slots = [
        ("to itself", [0, 0, 1, 0, 0, 0, 0, 0]),
        ("to the left", [0, 1, 0, 0, 0, 0, 0, 0]),
        ("soft: to a group", [0, 0.34, 0.33, 0.33, 0, 0, 0, 0]),
        ("empty: anywhere", [0.125] * 8),
    ]
    features = np.random.default_rng(4).random((4, 8))
    for slot, (words, weights) in enumerate(slots):
        y = 86 + slot * 68
        canvas.arrow(f"M111,210 C150,210 150,{y + 26} 184,{y + 26}", "edge")
        canvas.text(192, y + 22, f"slot {slot}", anchor="start")
        canvas.text(192, y + 39, words, "quiet", anchor="start", style="small")
        canvas.grid(328, y + 16, features[slot : slot + 1], "edge", 16)
        bars(canvas, 536, y, weights)
    return canvas


def chain(canvas: Canvas, y: float, bright: int = 7) -> list[float]:
    """Seven nodes in a line, all but the first `bright` in grey; returns their x."""
    places = [80 + 116 * node for node in range(7)]
    for node, x in enumerate(places):
        canvas.circle(x, y, 22, NAMES[node], "node" if node < bright else "quiet")
    return places


def arc(
    canvas: Canvas, start: float, stop: float, y: float, stroke: str = "address", width: float = 1.6
) -> None:
    foot, top = y - 20, y - 46 - 0.19 * (stop - start)
    canvas.arrow(
        f"M{start + 10:g},{foot:g} C{start + 30:g},{top:g} {stop - 30:g},{top:g} "
        f"{stop - 10:g},{foot - 1:g}",
        stroke,
        width,
    )


def referral_before() -> Canvas:
    canvas = Canvas(860, 172, "Every node has an edge that points one step to the right")
    canvas.text(
        30, 32, "1. Before: every node points one step to the right", anchor="start", style="title"
    )
    places = chain(canvas, 126)
    for start, stop in pairwise(places):
        arc(canvas, start, stop, 126, stroke="address")
    return canvas


def referral_ask() -> Canvas:
    canvas = Canvas(
        860, 252, "Node A follows its edge e1 to B and takes B's edge e2, which points to C"
    )
    canvas.text(
        30,
        32,
        "2. Referral: A asks the node it points to, and takes over one of its edges",
        anchor="start",
        style="title",
    )
    places = chain(canvas, 126, bright=3)
    for node, name in ((0, "n1"), (1, "n2"), (2, "n3")):
        canvas.text(places[node], 168, name, "quiet", style="mono")
    arc(canvas, places[0], places[1], 126, stroke="node", width=2.6)
    arc(canvas, places[1], places[2], 126, stroke="address", width=2.6)
    canvas.text((places[0] + places[1]) / 2, 66, "e1", "node", style="mono")
    canvas.text((places[1] + places[2]) / 2, 66, "e2", "address", style="mono")
    words = [
        "Which n2? One that A's own edges point to (edge factor) "
        "and whose content fits A's query (node factor).",
        "Which e2? The edge of n2 whose features fit the same query (e2 factor). "
        "One softmax over all pairs (n2, e2).",
    ]
    canvas.lines(30, 206, words, 22, fill="quiet", anchor="start")
    return canvas


def referral_after() -> Canvas:
    canvas = Canvas(860, 372, "After one referral edges reach two steps, after two referrals four")
    canvas.text(
        30,
        32,
        "3. After: the new edge points where e2 pointed, two steps away",
        anchor="start",
        style="title",
    )
    places = chain(canvas, 136)
    for start, stop in zip(places, places[2:]):
        arc(canvas, start, stop, 136, stroke="address")
    canvas.text(
        30,
        204,
        "... and in the next layer the same step doubles it again: 1, 2, 4",
        anchor="start",
        style="title",
    )
    places = chain(canvas, 336)
    for start, stop in zip(places, places[4:]):
        arc(canvas, start, stop, 336, stroke="address")
    return canvas


def overview() -> Canvas:
    """Both mechanisms beside each other on one small graph."""
    canvas = Canvas(860, 330, "Referral makes new edges; attention reads along them")
    spots = {"A": (76, 198), "B": (190, 90), "C": (330, 114), "D": (352, 238), "E": (206, 260)}
    for left, title in (
        (0, "Edge sublayer: nodes pass on addresses"),
        (430, "Node sublayer: nodes pass on content"),
    ):
        canvas.rect(left + 14, 14, 402, 302)
        canvas.text(left + 215, 44, title, style="title")
    for left in (0, 430):
        for name, (x, y) in spots.items():
            canvas.circle(left + x, y, 22, name)
    canvas.arrow("M92,180 L173,106", "node", 2.4)
    canvas.arrow("M213,93 L306,110", "address", 2.4)
    canvas.arrow("M98,194 C170,174 250,154 310,128", "edge", 2.8, dashed=True)
    canvas.text(112, 134, "e1", "node", style="mono")
    canvas.text(262, 90, "e2", "address", style="mono")
    canvas.text(200, 188, "new edge", "edge")
    canvas.arrow("M229,258 L328,241", "line", 1.6)
    canvas.arrow("M87,218 L186,250", "line", 1.6)
    canvas.text(215, 302, "A is referred by B: it now points to C.", "quiet", style="small")
    canvas.arrow("M740,128 C680,154 600,174 530,194", "value", 2.8)
    canvas.arrow("M602,104 L522,178", "value", 1.4)
    canvas.arrow("M760,240 C680,228 600,218 530,204", "line", 1.4)
    canvas.arrow("M615,258 L520,216", "line", 1.4)
    canvas.text(662, 188, "content of C", "value")
    canvas.text(
        645, 302, "A attends most where an edge points and content fits.", "quiet", style="small"
    )
    return canvas


PICTURES = {
    "edge": edge,
    "referral-1": referral_before,
    "referral-2": referral_ask,
    "referral-3": referral_after,
    "overview": overview,
}
