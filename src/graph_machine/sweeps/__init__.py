"""Many runs: which, where, and how they stand."""
