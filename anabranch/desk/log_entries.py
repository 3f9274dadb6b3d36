"""Records of the log as people see them: the envelope, and the payload of what is about the system itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from api.feeds import LogEntry
from schemas.errors import AnabranchError, TransientError
from schemas.ports.feed import FeedRecord
from schemas.records import StoredRecord
from streams.codec import Codec, base_topic, clues
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES, RAW

TOLD_WHOLE = frozenset({OUTCOMES, DEAD_LETTERS, CONTROL})
"""Topics whose payloads are shown: what became of events. The others hold texts of documents and questions."""


@dataclass(frozen=True, slots=True)
class Entries:
    codec: Codec
    default_tenant: str = "default"

    async def entry(self, record: FeedRecord, tenant: str, document: UUID | None) -> LogEntry | None:
        """None where the record is another tenant's, or is not about the document that is asked for."""
        stored = record.stored
        headers = {name: value.decode(errors="replace") for name, value in stored.record.headers.items()}
        owner, about = self._tenant(stored, headers), _uuid(headers.get("ce_document"))
        if owner not in (None, tenant) or (document is not None and about != document):
            return None
        event_id, source, event_type = clues(stored.record)
        return LogEntry(
            cursor=record.cursor,
            topic=stored.position.topic,
            partition=stored.position.partition,
            offset=stored.position.offset,
            type=event_type,
            id=event_id,
            source=source,
            time=headers.get("ce_time"),
            appended_at=stored.appended_at.isoformat(),
            tenant=owner,
            document_id=about,
            cause=headers.get("ce_causationid"),
            how=headers.get("ce_how"),
            bytes=record.bytes,
            data=await self._data(stored),
        )

    def _tenant(self, stored: StoredRecord, headers: Mapping[str, str]) -> str | None:
        """Whose it is; null where it is nobody's (decisions). A producer's event that does not say is the default tenant's."""
        if "ce_tenant" in headers:
            return headers["ce_tenant"]
        return (_claimed_tenant(stored.record.value) or self.default_tenant) if base_topic(stored.position.topic) == RAW else None

    async def _data(self, stored: StoredRecord) -> dict[str, Any] | None:
        if base_topic(stored.position.topic) not in TOLD_WHOLE or stored.record.value is None:
            return None
        try:
            data: dict[str, Any] = (await self.codec.decode(stored)).data.model_dump(mode="json", exclude_none=True)
        except TransientError:
            raise
        except AnabranchError as error:
            return {"unreadable": error.detail}
        return data


def _claimed_tenant(value: bytes | None) -> str | None:
    try:
        payload = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    inner = payload.get("data", payload) if isinstance(payload, dict) else None
    found = inner.get("tenant") if isinstance(inner, dict) else None
    return found if isinstance(found, str) else None


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
