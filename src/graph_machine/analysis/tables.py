"""The paper's four tables of temperatures and entropies (appendix C): columns and its numbers."""

from dataclasses import dataclass

# (sublayer, tensor): one column of a table, and one line of the plot by layer.
Column = tuple[str, str]


@dataclass(frozen=True)
class Table:
    """One of the paper's four tables: title, and (heading, column) in the paper's order.

    >>> [table.key for table in TABLES]
    ['sharpener-temps', 'factor-temps', 'factor-entropies', 'address-entropies']
    """

    key: str
    title: str
    columns: tuple[tuple[str, Column], ...]


TABLES = (
    Table(
        "sharpener-temps",
        "Mean sharpener temperatures",
        (
            ("edge sublayer", ("edge", "sharpener_temps")),
            ("node sublayer", ("node", "sharpener_temps")),
        ),
    ),
    Table(
        "factor-temps",
        "Mean factor temperatures",
        (
            ("edge sublayer: n2 edge", ("edge", "n2_edge_factor_temps")),
            ("n2 node", ("edge", "n2_node_factor_temps")),
            ("e2", ("edge", "e2_factor_temps")),
            ("node sublayer: edge", ("node", "edge_factor_temps")),
            ("node", ("node", "node_factor_temps")),
        ),
    ),
    Table(
        "factor-entropies",
        "Factor mean normalised entropies",
        (
            ("edge sublayer: n2 edge", ("edge", "n2_edge_factors")),
            ("n2 node", ("edge", "n2_node_factors")),
            ("e2", ("edge", "e2_factors")),
            ("weight (n2)", ("edge", "n2_weights")),
            ("node sublayer: edge", ("node", "edge_factors")),
            ("node", ("node", "node_factors")),
            ("weight", ("node", "weights")),
        ),
    ),
    Table(
        "address-entropies",
        "Address mean normalised entropies",
        (
            ("edge sublayer: in", ("edge", "address_ins")),
            ("out", ("edge", "address_outs")),
            ("node sublayer: in", ("node", "address_ins")),
        ),
    ),
)
COLUMNS: tuple[Column, ...] = tuple(column for table in TABLES for _, column in table.columns)

# The paper's numbers: 9x9 boards, 32 layers, 100k steps, means over ten seeds.
PAPER: dict[str, dict[Column, float]] = {
    "GM": {
        ("edge", "sharpener_temps"): 1.050,
        ("node", "sharpener_temps"): 1.098,
        ("edge", "n2_edge_factor_temps"): 15.374,
        ("edge", "n2_node_factor_temps"): 0.287,
        ("edge", "e2_factor_temps"): 3.386,
        ("node", "edge_factor_temps"): 1.096,
        ("node", "node_factor_temps"): 0.861,
        ("edge", "n2_edge_factors"): 0.402,
        ("edge", "n2_node_factors"): 0.945,
        ("edge", "e2_factors"): 0.731,
        ("edge", "n2_weights"): 0.368,
        ("node", "edge_factors"): 0.741,
        ("node", "node_factors"): 0.891,
        ("node", "weights"): 0.652,
        ("edge", "address_ins"): 0.692,
        ("edge", "address_outs"): 0.712,
        ("node", "address_ins"): 0.715,
    },
    "Transformer": {
        ("node", "node_factor_temps"): 0.871,
        ("node", "node_factors"): 0.736,
        ("node", "weights"): 0.736,
    },
}
