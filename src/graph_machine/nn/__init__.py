"""Layers with explicit keyword arguments, usable in any PyTorch model."""

from graph_machine.nn.basic import RMSNorm, Sharpener, SwiGLU
from graph_machine.nn.core import RecurrentCore
from graph_machine.nn.heads import EdgeAugmentedAttention, EdgeCentricReferral
from graph_machine.nn.input import EdgeInput, FirstEdges, NodeInput, ProjectedEdges
from graph_machine.nn.stack import Entropies, GraphMachineStack, Layer
from graph_machine.nn.sublayers import EdgeSublayer, NodeSublayer
from graph_machine.nn.taps import listen

__all__ = [
    "EdgeAugmentedAttention",
    "EdgeCentricReferral",
    "EdgeInput",
    "EdgeSublayer",
    "Entropies",
    "FirstEdges",
    "GraphMachineStack",
    "Layer",
    "NodeInput",
    "NodeSublayer",
    "ProjectedEdges",
    "RMSNorm",
    "RecurrentCore",
    "Sharpener",
    "SwiGLU",
    "listen",
]
