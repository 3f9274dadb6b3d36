"""Events that any producer may send: topic `raw`."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from schemas.events.envelope import EventData
from schemas.ids import make_document_id
from schemas.principals import Tenant
from schemas.topics import RAW
from schemas.values import Amendment, DocumentFields, RequestedChange, Value


def _one_of_schema(*names: str) -> dict[str, Any]:
    """Return JSON Schema in which exactly one of these properties is a string."""
    return {
        "oneOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in names]
    }


class Content(Value):
    """The content of a document, in exactly one of four forms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=_one_of_schema("base64", "text", "url", "storage_key"),
    )

    base64: str | None = Field(None, description="The bytes of a small file.")
    text: str | None = Field(None, description="Plain text or Markdown.")
    url: str | None = Field(None, max_length=8192, description="URL to download once, at ingress.")
    storage_key: str | None = Field(
        None,
        max_length=1024,
        description="Key of an uploaded file in the blob store, under `uploads/<tenant>/`.",
    )

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        set_fields = [
            name
            for name in ("base64", "text", "url", "storage_key")
            if getattr(self, name) is not None
        ]
        if len(set_fields) != 1:
            raise ValueError(
                "set exactly one of base64, text, url and storage_key; got "
                f"{', '.join(set_fields) or 'none'}"
            )
        return self


class DocumentReceived(
    DocumentFields, RequestedChange, EventData, name="document.received", topic=RAW
):
    """A document, or a new revision of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Tenant = Field("default", description="Tenant that the document belongs to.")
    external_id: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description=(
            "The producer's id of the document. Events with the same id are revisions of one "
            "document."
        ),
    )
    content: Content = Field(description="Content of the document.")
    force: bool = Field(False, description="Process the document even if it has not changed.")

    def resolve_document_id(self, source: str, content_sha256: str | None = None) -> UUID | None:
        """Return the id of the document, or None if it depends on bytes whose hash is not given.

        `source` is the ce_source if the source numbers its changes, else ''.
        """
        name = self.external_id or self.source_uri or self.content.url or content_sha256
        return make_document_id(self.tenant, source, name) if name else None


class DocumentReference(RequestedChange, EventData):
    """A reference to a document by external id or by document id."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=_one_of_schema("external_id", "document_id")
    )

    tenant: Tenant = Field("default", description="Tenant that the document belongs to.")
    external_id: str | None = Field(
        None, min_length=1, max_length=1024, description="The producer's id of the document."
    )
    document_id: str | None = Field(
        None, description="Id of the document, instead of `external_id`."
    )

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        if (self.external_id is None) == (self.document_id is None):
            raise ValueError("set either external_id or document_id")
        return self

    def resolve_document_id(self, source: str) -> UUID | None:
        """Return the id of the document, or None if `document_id` is not a UUID.

        `source` is the ce_source if the source numbers its changes, else ''.
        """
        if self.external_id is not None:
            return make_document_id(self.tenant, source, self.external_id)
        try:
            return UUID(self.document_id)
        except ValueError:
            return None


class DocumentWithdrawn(DocumentReference, name="document.withdrawn", topic=RAW):
    """Withdraw a document. The result does not depend on the sequence in which events arrive."""

    reason: str | None = Field(None, max_length=1000, description="Why the document is withdrawn.")


class DocumentAmended(Amendment, DocumentReference, name="document.amended", topic=RAW):
    """Change title, collection, tags, metadata or readers without processing the text again.

    The amendment holds until a later revision or amendment states the same field.
    """

    @model_validator(mode="after")
    def check_not_empty(self) -> Self:
        if not self.stated_fields():
            raise ValueError("set at least one of title, collection, tags, metadata and readers")
        return self


EVENTS: tuple[type[EventData], ...] = (DocumentReceived, DocumentWithdrawn, DocumentAmended)
