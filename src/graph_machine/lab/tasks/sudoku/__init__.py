"""Sudoku for any box shape."""
