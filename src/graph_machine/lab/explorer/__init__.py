"""A browser view of recordings."""
