"""Tasks: data, input graph, loss mask and metrics, declared apart from models and training."""
