"""Generation decisions: topic `control`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.generations import Generation
from schemas.topics import CONTROL

Purpose = Literal["first", "rebuild", "reindex"]


class GenerationCreated(EventData, name="generation.created", topic=CONTROL):
    """A generation was created. Its configuration is final."""

    generation: Generation
    base: str | None = Field(None, description="The generation that was live at the time.")
    purpose: Purpose = Field(
        "first",
        description="`rebuild`: from the same derived events, without calling engines. `reindex`: with another configuration.",
    )


class GenerationBuilt(EventData, name="generation.built", topic=CONTROL):
    """A generation processed every event below the barrier and built its indexes.

    It can be compared and promoted.
    """

    generation: str
    barrier: dict[str, dict[int, int]] = Field(
        {},
        description="Topic → partition → next offset, for the topics that the generation reads but does not write.",
    )


class GenerationPromoted(EventData, name="generation.promoted", topic=CONTROL):
    """A generation became live; the previous one is on standby."""

    generation: str
    previous: str | None = Field(None, description="The generation that was live before.")


class GenerationDropped(EventData, name="generation.dropped", topic=CONTROL):
    """A generation was dropped permanently, with its tables."""

    generation: str


EVENTS: tuple[type[EventData], ...] = (
    GenerationCreated,
    GenerationBuilt,
    GenerationPromoted,
    GenerationDropped,
)
