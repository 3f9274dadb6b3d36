"""All declared events, in a fixed order, and how to find one."""

from __future__ import annotations

from schemas.events import audit, control, dead_letters, erasure, feedback, outcomes, pipeline, raw, sources, usage
from schemas.events.declaration import Event


def declared() -> tuple[type[Event], ...]:
    return (
        *raw.EVENTS,
        *pipeline.EVENTS,
        *outcomes.EVENTS,
        *usage.EVENTS,
        *feedback.EVENTS,
        *control.EVENTS,
        *audit.EVENTS,
        *sources.EVENTS,
        *erasure.EVENTS,
        *dead_letters.EVENTS,
    )


def event_types() -> dict[tuple[str, str], type[Event]]:
    """By topic (without prefix or generation) and CloudEvents type."""
    return {(event.topic, event.event_type()): event for event in declared()}
