"""Models without memory."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from graph_machine.config import ModelConfig
from graph_machine.models import GraphMachine
from graph_machine.models.build import ShapesOnly
from support.recordings import board_spec


class Seen(TorchDispatchMode):
    """The names of the operators that were called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


def test_a_model_without_memory_has_every_shape_and_draws_nothing() -> None:
    """On the meta device torch imports its compiler for a random number: a second and a half."""
    config = ModelConfig(num_layers=1, d_node=8, num_heads=2)
    with Seen() as seen, ShapesOnly():
        shapes = GraphMachine(config, board_spec()).state_dict()
    assert "empty" in seen.names
    assert not seen.names & {"normal_", "uniform_"}
    assert all(tensor.is_meta for tensor in shapes.values())
    real = GraphMachine(config, board_spec()).state_dict()
    assert {name: tensor.shape for name, tensor in shapes.items()} == {
        name: tensor.shape for name, tensor in real.items()
    }
