"""Texts to vectors: the local model, any OpenAI-compatible server, and a deterministic one without a model."""
