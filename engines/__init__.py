"""Adapters for models, parsers, blob stores and HTTP, one per file. Ports: `schemas.ports.engines`."""
