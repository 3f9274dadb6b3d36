"""Decisions: topic `control`."""

from __future__ import annotations

from schemas.events.declaration import Event
from schemas.generations import Generation


class GenerationCreated(Event, name="generation.created", topic="control"):
    """A generation exists: its configuration is fixed from here on."""

    generation: Generation


class GenerationPromoted(Event, name="generation.promoted", topic="control"):
    """This generation is the one that answers."""

    generation: str


EVENTS: tuple[type[Event], ...] = (GenerationCreated, GenerationPromoted)
