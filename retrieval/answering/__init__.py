"""Weigh the evidence, answer and judge."""
