"""The catalog of declared events, in a fixed order."""

from __future__ import annotations

from schemas.events import (
    audit,
    control,
    dead_letters,
    erasure,
    feedback,
    outcomes,
    pipeline,
    raw,
    sources,
    usage,
)
from schemas.events.envelope import EventData


def list_event_classes() -> tuple[type[EventData], ...]:
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


def map_event_classes() -> dict[tuple[str, str], type[EventData]]:
    """Return the event classes by topic (without prefix or generation) and CloudEvents type."""
    return {
        (event_class.topic, event_class.event_type()): event_class
        for event_class in list_event_classes()
    }
