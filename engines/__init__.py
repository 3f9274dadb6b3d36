"""Adapters for models, parsers, blob stores and HTTP behind the ports of `schemas.ports.engines`, one per file."""
