"""Embedders: the local model, and servers with the interface of OpenAI or Cohere."""
