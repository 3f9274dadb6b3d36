"""Kafka settings, access rules and topic checks."""
