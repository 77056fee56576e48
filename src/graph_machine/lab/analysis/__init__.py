"""Statistics, region detectors and figures (paper, 3.4 and appendices C, D)."""
