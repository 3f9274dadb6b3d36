"""Faithful, deterministic servers of the outside world for tests."""
