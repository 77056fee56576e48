"""Graph Machine: Transformers with explicit, learned, dynamic edges."""

__version__ = "0.1.0"
