"""Graph Machine: Transformers with explicit, learned, dynamic edges.

from graph_machine import GraphMachine, GraphEncoder, open_model    models
from graph_machine import GraphMachineStack, Layer, EdgeSublayer    layers for your own model
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graph_machine.graphs import InputGraph as InputGraph
    from graph_machine.graphs import graph_from_edge_index as graph_from_edge_index
    from graph_machine.lab.opening import LoadedModel as LoadedModel
    from graph_machine.lab.opening import open_model as open_model
    from graph_machine.models import GraphEncoder as GraphEncoder
    from graph_machine.models import GraphMachine as GraphMachine
    from graph_machine.nn import EdgeAugmentedAttention as EdgeAugmentedAttention
    from graph_machine.nn import EdgeCentricReferral as EdgeCentricReferral
    from graph_machine.nn import EdgeSublayer as EdgeSublayer
    from graph_machine.nn import GraphMachineStack as GraphMachineStack
    from graph_machine.nn import Layer as Layer
    from graph_machine.nn import NodeSublayer as NodeSublayer
    from graph_machine.state import GraphState as GraphState

# Name -> where it is defined. Imported on first use, so that the command line and the configs
# do not wait for torch.
_HOME = {
    **dict.fromkeys(("GraphEncoder", "GraphMachine"), "models"),
    **dict.fromkeys(("LoadedModel", "open_model"), "lab.opening"),  # they find a model's task
    **dict.fromkeys(("EdgeAugmentedAttention", "EdgeCentricReferral", "EdgeSublayer"), "nn"),
    **dict.fromkeys(("GraphMachineStack", "Layer", "NodeSublayer"), "nn"),
    **dict.fromkeys(("InputGraph", "graph_from_edge_index"), "graphs"),
    "GraphState": "state",
}
__all__ = sorted(_HOME)  # pyrefly: ignore


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"graph_machine.{_HOME[name]}"), name)
    raise AttributeError(f"module 'graph_machine' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
