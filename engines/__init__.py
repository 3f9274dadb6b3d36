"""Adapters for models, parsers, blob stores and HTTP. Ports: `schemas.ports.engines`."""
