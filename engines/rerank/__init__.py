"""Scores of passages for a question: late interaction over stored token states, or a cross-encoder on a server."""
