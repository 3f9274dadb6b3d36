"""Servers of the outside world, faithful and deterministic, for tests."""
