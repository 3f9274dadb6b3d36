"""Prompts of chat models: a template, and the options of the request."""

from __future__ import annotations

from pydantic import Field

from schemas.values import Language, Value


class PromptProfile(Value):
    """A prompt of a chat model. Unset fields keep the shipped template and the server's model."""

    template: str | None = Field(None, min_length=1, max_length=20_000)
    """System message instead of the shipped one. `{language}` stands for the language, in
    parentheses, or for nothing if it is unknown.
    """
    role: str | None = Field(None, min_length=1, max_length=1000)
    """Text before the system message, such as `You are an analyst of mining technology.`"""
    language: Language | None = None
    """Language to write in, instead of the question's."""
    model: str | None = Field(None, min_length=1, max_length=200)
    """Model on the server, instead of its own."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sampling temperature. Unset sends 0 to vLLM and none to other servers, whose reasoning models
    reject one.
    """
    max_tokens: int | None = Field(None, ge=16, le=65_536)
    """Maximum tokens of the reply; 4096 if unset."""
