"""Evaluation: test sets, metrics and reports. Ingestion and search are passed in as callables."""
