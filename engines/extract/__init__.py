"""Extraction of names, relations and claims from chunks: by rules, by a chat model, or none."""
