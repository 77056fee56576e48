"""Graph algorithms: breadth-first distance, shortest paths, connected components."""
