"""The conditions and tables of the paper, sweeps and reports."""
