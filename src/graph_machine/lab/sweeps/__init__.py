"""Many runs: which ones, where they run, and their progress."""
