"""Jigsaw Sudoku: the regions differ from puzzle to puzzle."""
