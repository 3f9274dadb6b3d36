"""Embedders: the local model, OpenAI-compatible servers, and a deterministic one without a model."""
