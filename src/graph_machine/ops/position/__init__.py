"""Positions on a grid: sinusoidal and rotary encodings in two dimensions."""

from graph_machine.ops.position.rotary import rotary_angles, rotate
from graph_machine.ops.position.sinusoidal import grid_coordinates, sinusoidal_positions

__all__ = ["grid_coordinates", "rotary_angles", "rotate", "sinusoidal_positions"]
