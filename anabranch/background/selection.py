"""Which records of a topic a replay takes, told by their clear headers and their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.records import StoredRecord
from streams.codec import owner


@dataclass(frozen=True, slots=True)
class Selection:
    """What is None leaves everything in. Times are those of the log."""

    tenant: str
    documents: frozenset[UUID] | None
    since: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], tenant: str, collection: frozenset[UUID] | None) -> Selection:
        named = chosen.get("document_ids")
        documents = frozenset(map(UUID, named)) if named else None
        both = documents & collection if documents is not None and collection is not None else documents if collection is None else collection
        return cls(tenant, both, _moment(chosen.get("since")), _moment(chosen.get("until")))

    def takes(self, stored: StoredRecord) -> bool:
        if owner(stored) not in (None, self.tenant):
            return False
        if (self.since is not None and stored.appended_at < self.since) or (self.until is not None and stored.appended_at >= self.until):
            return False
        return self.documents is None or _document(stored.record.headers) in self.documents


def _document(headers: Mapping[str, bytes]) -> UUID | None:
    try:
        return UUID(headers.get("ce_document", b"").decode(errors="replace"))
    except ValueError:
        return None


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
