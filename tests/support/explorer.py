"""Small models and sessions for the tests of the explorer."""

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.explorer.puzzles import Example, Puzzles
from graph_machine.explorer.session import Session
from graph_machine.explorer.shown import LiveModel
from graph_machine.models import GraphMachine

EASY = "...1.4...3...132"  # 4x4 with one solution
EASY_SOLVED = "3241142323144132"
FOUR = InputSpec(
    num_tokens=5,
    num_outputs=4,
    num_nodes=16,
    grid=(4, 4),
    graph="grid",
    num_edge_categories=6,
    alphabet=".1234",
    answers="1234",
)
SMALL = ModelConfig(d_node=8, num_layers=2, num_heads=3, d_attn_key=4, d_attn_value=4, d_ref_key=4)


def small_model(**settings: object) -> GraphMachine:
    """An untrained model on 4x4 boards."""
    return GraphMachine(SMALL.replace(**settings), FOUR).eval()


def session_of(*models: GraphMachine, puzzle: str = EASY) -> Session:
    subjects = [LiveModel(model) for model in models]
    given = [Example(puzzle, "example 0")]
    return Session(subjects, Puzzles(subjects[0].board, given=given))
