"""Recording, statistics and figures."""
