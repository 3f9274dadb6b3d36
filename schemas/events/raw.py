"""What anyone may push: topic `raw`."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from schemas.events.declaration import Event
from schemas.values import DocumentFields, Value


class Content(Value):
    """Exactly one of the four."""

    base64: str | None = Field(None, description="the file's bytes; small ones only")
    text: str | None = Field(None, description="plain text or Markdown; becomes UTF-8 bytes")
    url: str | None = Field(None, max_length=8192, description="fetched once, at the door")
    storage_key: str | None = Field(None, max_length=1024, description="under uploads/<tenant>/ in the blob store")

    @model_validator(mode="after")
    def exactly_one(self) -> Self:
        given = [name for name in ("base64", "text", "url", "storage_key") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"content holds exactly one of base64, text, url, storage_key; got {', '.join(given) or 'none'}")
        return self


class DocumentReceived(DocumentFields, Event, name="document.received", topic="raw"):
    """A document, or a new revision of one, as its producer sends it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str = Field("default", min_length=1, max_length=255)
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    content: Content
    force: bool = Field(False, description="process again even if nothing changed")


class DocumentWithdrawn(Event, name="document.withdrawn", topic="raw"):
    """A document is gone, whatever order events arrive in. Named by external id, or by the id the system gave it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str = Field("default", min_length=1, max_length=255)
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    document_id: str | None = Field(None, description="in place of external_id")
    reason: str | None = Field(None, max_length=1000)

    @model_validator(mode="after")
    def named(self) -> Self:
        if (self.external_id is None) == (self.document_id is None):
            raise ValueError("give external_id or document_id, one of them")
        return self


EVENTS: tuple[type[Event], ...] = (DocumentReceived, DocumentWithdrawn)
