"""Answers: quoted from the contexts, or written from them by a chat model."""
