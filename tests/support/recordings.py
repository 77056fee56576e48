"""Small models and recordings for the tests of the analysis tools."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.lab.records import Record, record
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm

TRANSFORMER: dict[str, Any] = {"num_edges": 0, "attention_experts": "node", "num_edge_sublayers": 0}


def board_spec(side: int = 4) -> InputSpec:
    """A board whose cells are given or asked."""
    digits = "123456789"[:side]
    sizes = {"num_tokens": side + 1, "num_outputs": side, "num_nodes": side**2}
    kind: dict[str, Any] = {"graph": "grid", "grid": (side, side), "num_edge_categories": 6}
    return InputSpec(**sizes, **kind, alphabet=f".{digits}", answers=digits)


def board_batch() -> Batch:
    """The same boards with what counts."""
    tokens, answers = boards()
    return Batch(tokens, answers, tokens == 0)


def small_model(num_layers: int = 2, **config: Any) -> GraphMachine:
    """A random model on 4x4 boards, with weights large enough that all paths matter."""
    torch.manual_seed(0)
    small: dict[str, Any] = {"d_node": 16, "num_heads": 2, "num_edges": 6, "expansion": 2}
    small["init"] = "torch"
    return GraphMachine(ModelConfig(num_layers=num_layers, **(small | config)), board_spec()).eval()


# Four solved boards and what is given of them.
SOLUTIONS = ("1234341221434321", "1243342121344312", "4321213434121243", "2143341212344321")


def boards() -> tuple[Tensor, Tensor]:
    """Tokens and answers (output indices) of a few 4x4 puzzles."""
    answers = torch.tensor([[int(digit) - 1 for digit in text] for text in SOLUTIONS])
    given = torch.arange(16).remainder(3) != torch.arange(4)[:, None].remainder(3)
    return torch.where(given, answers + 1, 0), answers


@cache
def handmade_record(box: tuple[int, int] = (2, 2)) -> Record:
    side = box[0] * box[1]
    if side == 4:
        tokens, answers = boards()
    else:
        tokens = torch.randint(0, side + 1, (2, side * side), generator=torch.manual_seed(0))
        answers = (tokens - 1).clamp_min(0)
    return record(handmade_gm(box), tokens, solutions=answers, box=box, name="handmade")


@cache
def random_record(kind: str = "gm") -> Record:
    tokens, answers = boards()
    model = small_model(**(TRANSFORMER if kind == "transformer" else {}))
    return record(model, tokens, solutions=answers, box=(2, 2), name=kind)
