"""Graphs and sequences (pointers, algorithms, CLRS-30, relations, recall, text): budgets and
conditions.

Every condition has QK-norm, as those on boards, and mostly torch's initialisation: small
matrices drown the numbers at nodes and edges in the embedding of the token. Transformers and GNNs
distinguish nodes by names (random numbers); Graph Machines point at nodes and have no names. CLRS
has positions instead. Conditions of CLRS and relations see all input edges, whatever the degree.
"""

from graph_machine.lab.conditions.budgets import add_bases, cpu_base, smoke_base
from graph_machine.lab.conditions.registry import (
    BASE,
    NO_EDGES,
    RECOMMENDED,
    Settings,
    changes,
)
from graph_machine.lab.conditions.tables import add_conditions
from graph_machine.lab.config import (
    AlgorithmsConfig,
    ClrsConfig,
    PointersConfig,
    RecallConfig,
    RelationsConfig,
    TextConfig,
)

TRAIN: Settings = {"peak_lr": 2e-3, "test_examples": 1_024}
SMOKE: Settings = {"eval_examples": 32, "test_examples": 64}
add_bases(
    PointersConfig(),
    cpu=cpu_base(PointersConfig(), {"steps": 100, **TRAIN}, layers=4, width=32),
    smoke=smoke_base(PointersConfig(nodes=10, train_hops=2, test_hops=4), SMOKE),
)
add_bases(
    AlgorithmsConfig(),
    cpu=cpu_base(
        AlgorithmsConfig(), {"steps": 300, **TRAIN, "test_examples": 256}, layers=4, width=32
    ),
    smoke=smoke_base(AlgorithmsConfig(train_nodes=6, test_nodes="6,8"), SMOKE),
)
add_bases(
    RecallConfig(),
    cpu=cpu_base(RecallConfig(), {"steps": 600, **TRAIN}, layers=2, width=32),
    smoke=smoke_base(RecallConfig(length=12, pairs=4, test_pairs=5, keys=6), SMOKE),
)
add_bases(
    TextConfig(),
    cpu=cpu_base(TextConfig(length=64), {"steps": 250, **TRAIN, "peak_lr": 5e-3}, layers=2),
    smoke=smoke_base(TextConfig(length=16, most=40_000), SMOKE),
)
_relations = RelationsConfig(view="arriving", branches=2, grown_steps=6)
# Routes get shorter in larger graphs: units of weights that vary teach finer differences. A model
# that never met a position of 0 takes the first node of a file for something else.
_clrs = ClrsConfig(least_scale=0.2, first_at_zero=True)
for _config, _own in (
    (_clrs, {"steps": 3_000, "batch_size": 32, "ema": 0.99}),
    (_relations, {"steps": 1_000, "batch_size": 64}),
):
    _train = {**_own, "peak_lr": 2e-3, "test_examples": 2_048}
    _few = {"steps": 10, "batch_size": 8, "eval_every": 5, "eval_examples": 8, "test_examples": 18}
    add_bases(
        _config,
        cpu=cpu_base(_config, _train, layers=4, width=32),
        smoke=smoke_base(_config, _few),
    )

SHARED: Settings = {"qk_norm": True, "init": "torch"}
# One layer, then one layer with the same weights again and again, edges and nodes.
RECURRENT: Settings = {"num_layers": 1, "core_layers": 1, "core_edge_sublayers": 1, "rounds": 6}
# Rounds are drawn, so that more of them than were trained with stay useful.
ROUNDS: Settings = {"rounds_min": 2, "round_loss": "last"}
NAMELESS: Settings = {"name_width": 0}
# Bodies that are not stacks of this package's layers, and Transformers that get input edges.
NO_STATES: Settings = {"attention_experts": "node", "num_edge_sublayers": 0}
EDGES: Settings = {
    **SHARED,
    **NO_EDGES,
    "num_edges": BASE.model.num_edges,
    "project_input_edges": True,
}
PROJECTED = "input edges projected into nodes"
# For tasks that follow edges and nothing else: what is seen of other nodes, or of all of them, is
# worth less in larger graphs.
ALONG: Settings = {
    "given_edges": "always",
    "edge_values": True,
    "edge_ends": True,
    "attention_experts": "edge",
    "referral_experts": "edge",
}
# Distances of graph algorithms are passed from neighbour to neighbour. There are enough rounds for
# the longest chain in training, with noise between them: counts come to rest and stay apart.
ALONE: Settings = {
    **ALONG,
    "num_edge_sublayers": 0,
    "core_edge_sublayers": 0,
    "rounds": 32,
    "core_noise": 0.3,
}

for _task, _title in (("pointers", "Pointer chasing"), ("algorithms", "Graph algorithms")):
    _pointers = _task == "pointers"
    # Without names there is nothing but edges in `pointers`, and no number that could drown.
    _gm = {**SHARED, "init": "matrices" if _pointers else "torch"}
    _slower: Settings = {"peak_lr": 1e-3} if _pointers else {}
    _nodes = {
        "gm": ("GM", "GM", changes(_gm, task=NAMELESS)),
        "gm-recurrent": (
            "GM, recurrent",
            "GM, one layer and a recurrent core with referral",
            changes(_gm, RECURRENT, train=ROUNDS, task=NAMELESS),
        ),
        "gm-recommended": (
            "GM, recurrent, given edges",
            "the same, given edges stay, edge values, more rounds",
            changes(
                {**_gm, **RECURRENT, **RECOMMENDED, "rounds": 12},
                train={**ROUNDS, "rounds_min": 4},
                task=NAMELESS,
            ),
        ),
        "static": (
            "Edges never updated" if _pointers else "",
            "input edges are never updated",
            changes(_gm, {"num_edge_sublayers": 0}, task=NAMELESS),
        ),
        "transformer": (
            "Transformer, projected edges",
            f"Transformer, nodes with names, {PROJECTED}",
            changes(EDGES, train=_slower),
        ),
        "transformer-nameless": (
            "Transformer, projected edges, no names" if _pointers else "",
            f"Transformer, no names, {PROJECTED}",
            changes(EDGES, train=_slower, task=NAMELESS),
        ),
    }
    _bodies = {
        _body: (
            _body.upper(),
            f"{_body.upper()} of PyG, nodes with names",
            changes(SHARED, NO_STATES, {"body": _body}),
        )
        for _body in ("gine", "gps")
    }
    _local = {
        "gm-recommended-local": (
            "GM, recurrent, given edges alone",
            "nodes see the given edges only, which carry what the nodes at their ends hold",
            changes(
                {**_gm, **RECURRENT, **ALONE},
                train={"rounds_min": 12, "grad_rounds": 8},
                task={**NAMELESS, "long": 0.5, "most_scale": 4.0},
            ),
        )
    }
    add_conditions(_task, _title, _nodes | ({} if _pointers else _local) | _bodies)

for _task, _title in (("recall", "Associative recall"), ("text", "Bytes of text")):
    # It decides how fast a Transformer learns recall; GM learns it faster with torch's own.
    _gm = {**SHARED, "init": "matrices" if _task == "recall" else "torch"}
    # Referral takes half of a step and brings nothing on text; recall needs it (docs/sequences.md).
    _alone = ", no referral" if _task == "text" else ""
    _plain = {**_gm, **NO_EDGES}
    _places = {
        "gm": ("GM", "GM, the nearest positions as input edges", changes(_gm)),
        "gm-recommended": (
            "GM, given edges",
            f"the nearest positions stay as edges, edge values{_alone}",
            changes(SHARED, RECOMMENDED, {"num_edge_sublayers": 0} if _alone else {}),
        ),
        "transformer": ("Transformer", "Transformer, learned positions", changes(_plain)),
        "transformer-rope": (
            "Transformer, rotary",
            "Transformer, learned and rotary positions",
            changes(_plain, {"position": "rotary"}),
        ),
    }
    add_conditions(_task, _title, _places)

BODIES = {"gine": "GINE of PyG", "gps": "GPS of PyG", "edge-transformer": "Edge Transformer"}
# Noise keeps what a node holds near one of the relations.
LOCAL: dict[str, Settings] = {"clrs": {}, "relations": {"rounds": 12, "core_noise": 0.3}}
# Relations are composed by referral and nowhere else: nodes do not read edges, and a new edge has
# what the two edges held that it was made of, and nothing of what was in its slot before.
COMPOSED: Settings = {
    "attention_experts": "node",
    "edge_values": False,
    "edge_residual": False,
    "num_edge_sublayers": 0,
}
REFERRED: dict[str, Settings] = {"clrs": {}, "relations": COMPOSED}
for _task, _title in (("clrs", "CLRS-30"), ("relations", "Relations")):
    _given = {**SHARED, "given_edges": "always"}
    _gm = {**SHARED, **ALONG, "d_edge": 16 if _task == "clrs" else 32}
    _rounds = {**_gm, **RECURRENT}
    _local = {**_rounds, **LOCAL[_task], "num_edge_sublayers": 0, "core_edge_sublayers": 0}
    _train = {**ROUNDS, "rounds_min": 3} if _task == "relations" else ROUNDS
    _bare = NAMELESS if _task == "relations" else {}
    _along = {
        "gm": (
            "GM",
            "GM with given edges that carry what the nodes at their ends hold",
            changes(_gm, task=_bare),
        ),
        "gm-recurrent": (
            "GM, recurrent",
            "the same, one layer and a recurrent core with referral",
            changes(_rounds, REFERRED[_task], train=_train, task=_bare),
        ),
        "gm-recurrent-local": (
            "GM, recurrent, no referral",
            "the same without referral: nodes see the given edges only",
            changes(_local, train=_train, task=_bare),
        ),
        "transformer": (
            "Transformer, projected edges",
            "Transformer, input edges in nodes",
            changes(_given, NO_STATES, {"project_input_edges": True}),
        ),
    }
    _others = {
        _body: (
            _doc,
            _doc,
            changes(
                {**_given, **NO_STATES, "body": _body},
                task=_bare if _body == "edge-transformer" else {},
            ),
        )
        for _body, _doc in BODIES.items()
    }
    add_conditions(_task, _title, _along | _others)
