"""Where a document can be."""

from __future__ import annotations

from typing import Literal, get_args

JobState = Literal["accepted", "running", "searchable", "failed", "superseded", "withdrawn"]
"""Of one event on its way: `accepted` until the door has taken it in, `superseded` when a later revision came first."""

DocumentState = Literal["running", "searchable", "failed", "withdrawn"]
"""Of a document: that of its latest revision."""

DOCUMENT_STATES: tuple[DocumentState, ...] = get_args(DocumentState)
FINAL_STATES: frozenset[JobState] = frozenset({"searchable", "failed", "superseded", "withdrawn"})
"""Nothing more happens to the event."""
