"""Rebuild tables from the log, and check restored ones."""
