"""Multi-query associative recall."""
