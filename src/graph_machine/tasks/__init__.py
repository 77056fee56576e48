"""Tasks: data, input graph, loss mask and metrics, declared separately from models and training."""
