"""A language model over bytes."""
