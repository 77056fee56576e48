"""Pointer chasing: follow the one outgoing edge of every node."""
