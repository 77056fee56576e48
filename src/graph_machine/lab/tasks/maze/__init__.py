"""Mazes on a grid of cells: mark the shortest path from start to goal."""
