"""Select the records of a replay by their unencrypted headers and append time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.records import StoredRecord
from streams.codec import resolve_tenant


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """None admits everything. Times are append times."""

    tenant: str
    documents: frozenset[UUID] | None
    since: datetime | None
    until: datetime | None

    @classmethod
    def from_criteria(
        cls, criteria: Mapping[str, Any], tenant: str, collection_documents: frozenset[UUID] | None
    ) -> RecordFilter:
        document_ids = criteria.get("document_ids")
        requested_documents = frozenset(map(UUID, document_ids)) if document_ids else None
        selected_documents = (
            requested_documents & collection_documents
            if requested_documents is not None and collection_documents is not None
            else requested_documents
            if collection_documents is None
            else collection_documents
        )
        return cls(
            tenant,
            selected_documents,
            _parse_time(criteria.get("since")),
            _parse_time(criteria.get("until")),
        )

    def matches(self, stored: StoredRecord) -> bool:
        if resolve_tenant(stored) not in (None, self.tenant):
            return False
        if (self.since is not None and stored.appended_at < self.since) or (
            self.until is not None and stored.appended_at >= self.until
        ):
            return False
        return self.documents is None or _parse_document_id(stored.record.headers) in self.documents


def _parse_document_id(headers: Mapping[str, bytes]) -> UUID | None:
    try:
        return UUID(headers.get("ce_document", b"").decode(errors="replace"))
    except ValueError:
        return None


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
