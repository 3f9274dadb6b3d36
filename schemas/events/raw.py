"""What anyone may push: topic `raw`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from schemas.events.envelope import EventData
from schemas.ids import make_document_id
from schemas.values import Amendment, DocumentFields, Value


def _one_of_schema(*names: str) -> dict[str, Any]:
    """In JSON Schema: one of these properties is a text, the others are null or left out."""
    return {"oneOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in names]}


MAX_TENANT_LENGTH = 64
_UUID_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TENANT_PATTERN = rf"^(?!uploads$)(?!{_UUID_PATTERN}$)[a-z0-9][a-z0-9._-]{{0,{MAX_TENANT_LENGTH - 1}}}$"
"""A folder of the blob store: no other one's, none that documents have, and the same on file systems without case."""


def is_valid_tenant(name: str) -> bool:
    return re.fullmatch(_TENANT_PATTERN, name) is not None


def _validate_tenant(name: str) -> str:
    if not is_valid_tenant(name):
        raise ValueError(
            f"tenant {name!r} is not 1 to {MAX_TENANT_LENGTH} characters of a-z, 0-9, '.', '_' and '-' that begin with a letter or digit, or is 'uploads' or a UUID"
        )
    return name


Tenant = Annotated[str, AfterValidator(_validate_tenant), Field(min_length=1, max_length=MAX_TENANT_LENGTH, json_schema_extra={"pattern": _TENANT_PATTERN})]
"""Whoever a document belongs to. The name is a folder of the blob store, so that none lies within another's."""


class Content(Value):
    """Exactly one of the four."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_one_of_schema("base64", "text", "url", "storage_key"))

    base64: str | None = Field(None, description="the file's bytes; small ones only")
    text: str | None = Field(None, description="plain text or Markdown; becomes UTF-8 bytes")
    url: str | None = Field(None, max_length=8192, description="fetched once, at the door")
    storage_key: str | None = Field(None, max_length=1024, description="under uploads/<tenant>/ in the blob store")

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        set_fields = [name for name in ("base64", "text", "url", "storage_key") if getattr(self, name) is not None]
        if len(set_fields) != 1:
            raise ValueError(f"content holds exactly one of base64, text, url, storage_key; got {', '.join(set_fields) or 'none'}")
        return self


class DocumentReceived(DocumentFields, EventData, name="document.received", topic="raw"):
    """A document, or a new revision of one, as its producer sends it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Tenant = "default"
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    content: Content
    force: bool = Field(False, description="process again even if nothing changed")

    def resolve_document_id(self, source: str, content_sha256: str | None = None) -> UUID | None:
        """The document that this is a revision of. `source` is the ce_source if it numbers its changes, else ''. None where only its bytes would tell."""
        name = self.external_id or self.source_uri or self.content.url or content_sha256
        return make_document_id(self.tenant, source, name) if name else None


class DocumentReference(EventData):
    """Named by external id, or by the id the system gave it."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_one_of_schema("external_id", "document_id"))

    tenant: Tenant = "default"
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    document_id: str | None = Field(None, description="in place of external_id")

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        if (self.external_id is None) == (self.document_id is None):
            raise ValueError("give external_id or document_id, one of them")
        return self

    def resolve_document_id(self, source: str) -> UUID | None:
        """As `DocumentReceived.document`. None where `document_id` is no UUID."""
        if self.external_id is not None:
            return make_document_id(self.tenant, source, self.external_id)
        try:
            return UUID(self.document_id)
        except ValueError:
            return None


class DocumentWithdrawn(DocumentReference, name="document.withdrawn", topic="raw"):
    """A document is gone, whatever order events arrive in. Named by external id, or by the id the system gave it."""

    reason: str | None = Field(None, max_length=1000)


class DocumentAmended(Amendment, DocumentReference, name="document.amended", topic="raw"):
    """Title, collection, tags, metadata or readers of a document are others from now on; its text is not touched, and nothing is embedded again.
    Holds until a later revision or amendment says something of the same field."""

    @model_validator(mode="after")
    def check_not_empty(self) -> Self:
        if not self.stated_fields():
            raise ValueError("give title, collection, tags, metadata or readers, at least one of them")
        return self


EVENTS: tuple[type[EventData], ...] = (DocumentReceived, DocumentWithdrawn, DocumentAmended)
