"""Replay ranges and redrive dead letters."""
