"""The structs and functions of the C files, as ctypes declarations, in the order of the sources."""

import ctypes

POINTER, LONG, INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
FLOAT = ctypes.c_float
MOST_PARTS = 8  # project.c
Longs, Parts = LONG * MOST_PARTS, POINTER * MOST_PARTS


class Heads(ctypes.Structure):
    """Rows of a tensor through strides of graph, head and node (common.h)."""

    _fields_ = [("at", POINTER), ("graph", LONG), ("head", LONG), ("node", LONG)]


class Factors(ctypes.Structure):
    """factors.h"""

    _fields_ = [
        *((name, LONG) for name in ("b", "h", "n", "k", "m", "d")),
        *((name, Heads) for name in ("e1_weights", "edge_temps", "queries", "keys")),
        *(("addresses", POINTER), ("given", POINTER), ("g", LONG), ("empty", LONG)),
        *((name, POINTER) for name in ("mask", "entropy_weights")),
        *((name, LONG) for name in ("mask_graph", "mask_source", "weight_graph", "weight_source")),
        ("eps", FLOAT),
        ("given_scale", FLOAT),
        ("logit_space", INT),
        *((name, POINTER) for name in ("starts", "squares")),
    ]


class FactorGrads(ctypes.Structure):
    """factors.h"""

    _fields_ = [
        *((name, Heads) for name in ("e1_weights", "edge_temps", "queries", "keys")),
        ("addresses", POINTER),
        ("edge_slope", FLOAT),
        ("node_slope", FLOAT),
    ]


class AttendGrads(ctypes.Structure):
    """attend.c"""

    _fields_ = [
        *((name, Heads) for name in ("values", "e2_queries", "e2_keys", "own_weights")),
        ("e2_addresses", POINTER),
    ]


class Attend(ctypes.Structure):
    """attend.c"""

    _fields_ = [*((name, LONG) for name in ("v", "e", "l", "a")), *AttendGrads._fields_]


class ReferGrads(ctypes.Structure):
    """refer.c"""

    _fields_ = [
        *((name, Heads) for name in ("queries", "keys", "values", "n2_values")),
        ("addresses", POINTER),
    ]


class Refer(ctypes.Structure):
    """refer.c"""

    _fields_ = [
        *((name, LONG) for name in ("u", "l", "d", "e", "a", "v")),
        *ReferGrads._fields_,
        ("conditional", INT),
    ]


class ReferOuts(ctypes.Structure):
    """refer.c"""

    _fields_ = [("addresses", POINTER), ("e2", POINTER), ("n2", POINTER)]


class Slots(ctypes.Structure):
    """own_edges.c"""

    _fields_ = [
        *((name, LONG) for name in ("b", "n", "h", "k", "d", "e")),
        *((name, Heads) for name in ("queries", "node_temps", "e2_temps")),
        *((name, POINTER) for name in ("features", "e1_weights", "e2_weights", "given")),
        *(("g", LONG), ("first", LONG)),
        ("scale", FLOAT),
        ("own", INT),
    ]


class SlotOuts(ctypes.Structure):
    """own_edges.c"""

    _fields_ = [
        *((name, POINTER) for name in ("queries", "weights", "mixed")),
        *((name, POINTER) for name in ("e2_queries", "own_weights", "own_mixed")),
    ]


class SlotGrads(ctypes.Structure):
    """own_edges.c"""

    _fields_ = [
        *((name, Heads) for name in ("queries", "node_temps", "e2_temps")),
        ("features", POINTER),
        ("parameters", POINTER),
    ]


class Collect(ctypes.Structure):
    """own_edges.c"""

    _fields_ = [
        *((name, LONG) for name in ("rows", "h", "v", "e")),
        *((name, POINTER) for name in ("base", "e1", "e2", "e1_weights", "e2_weights")),
    ]


class Ffn(ctypes.Structure):
    """feed_forward.c"""

    _fields_ = [
        *((name, LONG) for name in ("rows", "d", "f", "a")),
        *((name, POINTER) for name in ("x", "norm", "gate_up", "down", "added", "out")),
        ("eps", FLOAT),
    ]


class Project(ctypes.Structure):
    """project.c"""

    _fields_ = [
        *((name, LONG) for name in ("rows", "d", "h", "width", "count")),
        *(("widths", Longs), ("kinds", Longs)),
        *((name, POINTER) for name in ("x", "norm", "weight")),
        *(("eps", FLOAT), ("shift", FLOAT)),
    ]


class Edges(ctypes.Structure):
    """sharpen.c"""

    _fields_ = [
        *((name, LONG) for name in ("rows", "e", "kind", "slots", "ld")),
        *((name, POINTER) for name in ("x", "norm", "weight", "edge_norm")),
        *(("eps", FLOAT), ("shift", FLOAT)),
    ]


class Staying(ctypes.Structure):
    """sharpen.c"""

    _fields_ = [
        *((name, LONG) for name in ("nodes", "s", "g", "e", "ld")),
        *((name, POINTER) for name in ("x", "weight", "given")),
        ("eps", FLOAT),
    ]


class Messages(ctypes.Structure):
    """messages.c"""

    _fields_ = [
        *((name, LONG) for name in ("rows", "k", "x", "e")),
        *((name, POINTER) for name in ("seen", "edges", "weight", "targets")),
    ]


# Function -> types of its arguments; those whose name ends in `_work` return a long.
FUNCTIONS = {
    "gm_attend": [*[POINTER] * 7, INT],
    "gm_attend_backward": [*[POINTER] * 8, INT],
    "gm_attend_work": [POINTER, POINTER],
    "gm_collect": [*[POINTER] * 3, INT],
    "gm_collect_backward": [*[POINTER] * 5, INT],
    "gm_edges": [*[POINTER] * 3, INT],
    "gm_edges_backward": [*[POINTER] * 5, INT],
    "gm_ffn": [*[POINTER] * 3, INT],
    "gm_ffn_backward": [*[POINTER] * 6, INT],
    "gm_ffn_work": [POINTER],
    "gm_gathered_dots": [*[LONG] * 4, *[POINTER] * 4, INT],
    "gm_gathered_sums": [*[LONG] * 4, *[POINTER] * 4, INT],
    "gm_messages": [*[POINTER] * 3, INT],
    "gm_messages_backward": [*[POINTER] * 6, INT],
    "gm_messages_work": [POINTER],
    "gm_norm": [LONG, LONG, POINTER, POINTER, FLOAT, POINTER, INT],
    "gm_norm_backward": [LONG, LONG, POINTER, POINTER, FLOAT, *[POINTER] * 3, INT],
    "gm_project": [*[POINTER] * 3, INT],
    "gm_project_backward": [*[POINTER] * 5, INT],
    "gm_project_work": [POINTER],
    "gm_refer": [*[POINTER] * 6, INT],
    "gm_refer_backward": [*[POINTER] * 8, INT],
    "gm_refer_work": [POINTER, POINTER],
    "gm_scattered_sums": [*[LONG] * 4, *[POINTER] * 4, INT],
    "gm_sharpen": [
        *([LONG] * 5 + [POINTER] * 3),
        *(LONG, LONG, FLOAT, POINTER, POINTER, INT),
    ],
    "gm_sharpen_backward": [*[LONG] * 4, *[POINTER] * 4, FLOAT, POINTER, POINTER, INT],
    "gm_sharpen_packed": [*[LONG] * 3, *[POINTER] * 4, FLOAT, *[POINTER] * 2, INT],
    "gm_sharpen_packed_backward": [*[LONG] * 2, *[POINTER] * 6, FLOAT, *[POINTER] * 2, INT],
    "gm_sharpen_work": [LONG],
    "gm_slots": [POINTER, POINTER, INT],
    "gm_slots_backward": [*[POINTER] * 4, INT],
    "gm_staying": [*[POINTER] * 2, INT],
    "gm_staying_backward": [*[POINTER] * 4, INT],
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Give every function the types of its arguments and its result."""
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = LONG if name.endswith("_work") else None
    return library
