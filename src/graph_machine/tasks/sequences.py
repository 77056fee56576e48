"""What tasks on causal sequences have in common."""

from graph_machine.config import InputSpec

MOST_EDGES = 16  # input edges are told apart by their distance, and empty ones


def causal_spec(length: int, *, num_tokens: int, num_outputs: int) -> InputSpec:
    """A sequence of at most `length` positions, with edges to the nearest earlier ones.

    >>> causal_spec(48, num_tokens=10, num_outputs=5).causal
    True
    """
    return InputSpec(
        num_tokens=num_tokens,
        num_outputs=num_outputs,
        num_nodes=length,
        grid=(1, length),
        graph="sequence",
        num_edge_categories=MOST_EDGES + 1,
        causal=True,
    )
