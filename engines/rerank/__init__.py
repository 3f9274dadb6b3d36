"""Rerankers: late interaction over stored token states, or a cross-encoder on a server."""
