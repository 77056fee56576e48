"""Graph Machine: Transformers with explicit, learned, dynamic edges."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graph_machine.models import GraphEncoder as GraphEncoder
    from graph_machine.models import GraphMachine as GraphMachine


def __getattr__(name: str) -> Any:
    # Lazily, so that the command line and the configs need not wait for torch.
    if name in ("GraphEncoder", "GraphMachine"):
        from graph_machine import models

        return getattr(models, name)
    raise AttributeError(f"module 'graph_machine' has no attribute '{name}'")
