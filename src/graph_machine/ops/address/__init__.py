"""Addresses: distributions over target nodes."""
