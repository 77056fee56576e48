"""Models that ship with the package (in `models/`): their cards, and how a run becomes one."""
