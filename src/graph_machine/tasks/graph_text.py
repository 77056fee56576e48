"""What the text forms of graphs have in common."""

from graph_machine.errors import DataError

MOST_NODES = 1024  # memory grows with the square of them, here and in most models


def check_size(n: int) -> None:
    """One line where a graph has more nodes than text may have.

    >>> check_size(1024)
    """
    if n > MOST_NODES:
        raise DataError(
            f"Expected at most {MOST_NODES:,} nodes (0 to {MOST_NODES - 1}), got {n:,}."
        )
