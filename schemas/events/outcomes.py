"""What became of each event of `raw`: topic `outcomes`, for producers without HTTP."""

from __future__ import annotations

from uuid import UUID

from pydantic import ConfigDict, Field

from schemas.events.envelope import EventData


class DocumentOutcome(EventData):
    """Every field is always there; what does not apply is null."""

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_serialization_defaults_required=True)

    external_id: str | None = None
    tenant: str | None = None
    document_id: UUID | None = Field(None, description="null when the event could not be read")
    event_id: str | None = Field(None, description="the producer's ce_id")
    source: str | None = Field(None, description="the producer's ce_source")
    chunks_count: int = 0
    code: str | None = None
    detail: str | None = None
    remedy: str | None = None


class DocumentIndexed(DocumentOutcome, name="document.indexed", topic="outcomes"):
    """The document is searchable. `code` is UNCHANGED when it already was, with the same content; AMENDED where only what is said of it
    changed (with no chunks counted, it holds from the first revision on)."""


class DocumentFailed(DocumentOutcome, name="document.failed", topic="outcomes"):
    """The event ended in a dead letter; `code`, `detail` and `remedy` say why and what to do."""


class DocumentSuperseded(DocumentOutcome, name="document.superseded", topic="outcomes"):
    """A later revision or a withdrawal came first."""


class RemovalCompleted(DocumentOutcome, name="document.removed", topic="outcomes"):
    """The document answers no question any more."""


EVENTS: tuple[type[EventData], ...] = (DocumentIndexed, DocumentFailed, DocumentSuperseded, RemovalCompleted)
