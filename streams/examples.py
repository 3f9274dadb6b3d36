"""Examples of events in `raw` and `outcomes`, for the JSON Schemas and the AsyncAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.events import (
    DocumentAmended,
    DocumentFailed,
    DocumentIndexed,
    DocumentReceived,
    DocumentSuperseded,
    DocumentWithdrawn,
    EventData,
    RemovalCompleted,
)

DOCUMENT_ID = "3f0e0c8e-6f0a-8d5c-9a53-5d3a4c3f7b11"
OUTCOME_FIELDS = {
    "external_id": "contract-17",
    "tenant": "default",
    "document_id": DOCUMENT_ID,
    "event_id": "contract-17/4",
    "source": "shop/contracts",
}
OUTCOME_HEADERS = {"ce_id": "0f6f7a52-6c1c-8a0e-b6a4-2f5b0c1d9e77", "ce_source": "anabranch/index"}


@dataclass(frozen=True, slots=True)
class Example:
    """An example event. `headers` holds those that do not follow from its type."""

    name: str
    payload: Mapping[str, Any]
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"ce_id": "contract-17/4", "ce_source": "shop/contracts"}
    )

    def to_asyncapi(self, event_class: type[EventData]) -> dict[str, Any]:
        headers = {
            "ce_specversion": "1.0",
            **self.headers,
            "ce_type": event_class.event_type(),
            "content-type": "application/json",
        }
        return {"name": self.name, "headers": headers, "payload": dict(self.payload)}


def _build_outcome_example(name: str, **fields: Any) -> Example:
    return Example(
        name,
        {
            **OUTCOME_FIELDS,
            "chunks_count": 0,
            "code": None,
            "detail": None,
            "remedy": None,
            **fields,
        },
        OUTCOME_HEADERS,
    )


EXAMPLES: Mapping[type[EventData], tuple[Example, ...]] = {
    DocumentReceived: (
        Example(
            "text",
            {
                "external_id": "note-3",
                "content": {"text": "The ferry leaves at a quarter past nine."},
            },
        ),
        Example(
            "an uploaded file",
            {
                "external_id": "contract-17",
                "tenant": "default",
                "filename": "contract-17.pdf",
                "media_type": "application/pdf",
                "content": {"storage_key": "uploads/default/contract-17.pdf"},
                "collection": "contracts",
                "tags": ["lease"],
            },
            {
                "ce_id": "contract-17/4",
                "ce_source": "shop/contracts",
                "ce_sequence": "4",
                "ce_time": "2026-03-01T09:00:00Z",
            },
        ),
    ),
    DocumentWithdrawn: (Example("withdrawn", {"external_id": "contract-17", "tenant": "default"}),),
    DocumentAmended: (
        Example(
            "another title",
            {"external_id": "contract-17", "tenant": "default", "title": "Lease of the boat house"},
        ),
    ),
    DocumentIndexed: (_build_outcome_example("searchable", chunks_count=12),),
    DocumentFailed: (
        _build_outcome_example(
            "failed",
            code="ENCRYPTED_DOCUMENT",
            detail="The PDF is encrypted and needs a password.",
            remedy="Send it without a password.",
        ),
    ),
    DocumentSuperseded: (_build_outcome_example("superseded", code="SUPERSEDED"),),
    RemovalCompleted: (_build_outcome_example("removed"),),
}
