"""Models: layers assembled from a config, checkpoints, predictions."""

from graph_machine.models.checkpoint import save_model
from graph_machine.models.encoder import Encoded, GraphEncoder, GraphMachineConv
from graph_machine.models.graph_machine import GraphMachine, ModelOut
from graph_machine.models.predict import Prediction, predict
from graph_machine.models.readout import GraphReadout, PairReadout

__all__ = [
    "Encoded",
    "GraphEncoder",
    "GraphMachine",
    "GraphMachineConv",
    "GraphReadout",
    "ModelOut",
    "PairReadout",
    "Prediction",
    "predict",
    "save_model",
]
