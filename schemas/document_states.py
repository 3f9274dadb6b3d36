"""States of jobs and documents."""

from __future__ import annotations

from typing import Literal, get_args

JobState = Literal["accepted", "running", "searchable", "failed", "superseded", "withdrawn"]
"""State of one event. `accepted` lasts until the event has passed ingress; `superseded` means that a later
revision or a withdrawal came first.
"""

DocumentState = Literal["running", "searchable", "failed", "withdrawn"]
"""State of a document's latest revision."""

DOCUMENT_STATES: tuple[DocumentState, ...] = get_args(DocumentState)
FINAL_STATES: frozenset[JobState] = frozenset({"searchable", "failed", "superseded", "withdrawn"})
"""States that no longer change without a new event."""
