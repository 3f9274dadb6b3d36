"""Project dead letters and their resolutions into their table."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import MalformedEvent
from schemas.events import DeadLetterClosed, Event, EventDeadLettered
from schemas.rows import EventRow
from schemas.topics import DEAD_LETTERS
from streams.stage import project_itself, shared_stage


def project(event: Event[EventDeadLettered | DeadLetterClosed]) -> Iterable[EventRow]:
    # CloudEvents makes `ce_time` optional; the row needs it.
    if event.time is None and isinstance(event.data, EventDeadLettered):
        raise MalformedEvent("The dead letter has no ce_time.")
    return project_itself(event)


STAGE = shared_stage("dead_letters", DEAD_LETTERS, 1, project=project)
