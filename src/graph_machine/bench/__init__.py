"""Benchmarks: each op against its reference, and the address spaces against n."""
