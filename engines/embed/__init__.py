"""Embedders: the local model, OpenAI-compatible servers, and one without a model."""
