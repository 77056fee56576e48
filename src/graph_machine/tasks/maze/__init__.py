"""Mazes on a grid of cells: mark the shortest way from start to goal."""
