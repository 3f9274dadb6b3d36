"""Decisions: topic `control`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.generations import Generation

Purpose = Literal["first", "rebuild", "reindex"]


class GenerationCreated(EventData, name="generation.created", topic="control"):
    """A generation exists: its configuration is fixed from here on."""

    generation: Generation
    base: str | None = Field(None, description="the live generation that it was made beside")
    purpose: Purpose = Field("first", description="`rebuild`: from the same facts, without any engine; `reindex`: with another configuration")


class GenerationBuilt(EventData, name="generation.built", topic="control"):
    """Every event below the barrier is settled in this generation, and its indexes are there: it can be compared and promoted."""

    generation: str
    barrier: dict[str, dict[int, int]] = Field({}, description="topic → partition → the next offset, of the topics that it reads and others write")


class GenerationPromoted(EventData, name="generation.promoted", topic="control"):
    """This generation is the one that answers; the previous one stands by."""

    generation: str
    previous: str | None = None


class GenerationDropped(EventData, name="generation.dropped", topic="control"):
    """This generation is given up for good, with its tables."""

    generation: str


EVENTS: tuple[type[EventData], ...] = (GenerationCreated, GenerationBuilt, GenerationPromoted, GenerationDropped)
