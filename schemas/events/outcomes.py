"""The outcome of each event on `raw`: topic `outcomes`, for producers that do not use HTTP."""

from __future__ import annotations

from uuid import UUID

from pydantic import ConfigDict, Field

from schemas.events.envelope import EventData
from schemas.topics import OUTCOMES


class DocumentOutcome(EventData):
    """Every field is always present; fields that do not apply are null."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_serialization_defaults_required=True
    )

    external_id: str | None = Field(None, description="The producer's id of the document.")
    tenant: str | None = None
    document_id: UUID | None = None
    """Id of the document. Null if the event could not be read."""
    event_id: str | None = Field(None, description="The producer's ce_id.")
    source: str | None = Field(None, description="The producer's ce_source.")
    chunks_count: int = Field(0, description="Number of searchable chunks.")
    code: str | None = Field(None, description="Result or error code.")
    detail: str | None = Field(None, description="What happened.")
    remedy: str | None = Field(None, description="What to do.")


class DocumentIndexed(DocumentOutcome, name="document.indexed", topic=OUTCOMES):
    """The document is searchable.

    `code` is UNCHANGED if the same content was searchable already. It is AMENDED if only
    descriptive fields changed; with a `chunks_count` of 0, the amendment takes effect with the
    first revision.
    """


class DocumentFailed(DocumentOutcome, name="document.failed", topic=OUTCOMES):
    """The event became a dead letter. `code`, `detail` and `remedy` say why and what to do."""


class DocumentSuperseded(DocumentOutcome, name="document.superseded", topic=OUTCOMES):
    """A later revision or a withdrawal came first."""


class RemovalCompleted(DocumentOutcome, name="document.removed", topic=OUTCOMES):
    """The document was withdrawn and is no longer searchable."""
