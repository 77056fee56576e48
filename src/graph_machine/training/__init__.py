"""One training implementation for every condition."""
