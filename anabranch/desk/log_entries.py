"""Records of the log as people see them: the envelope, and the payload of what is about the system itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from api.feeds import LogEntry
from schemas.errors import AnabranchError, TransientError
from schemas.ports.feed import FeedRecord
from schemas.records import StoredRecord
from streams.codec import Codec, base_topic, clues, owner
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES

TOLD_WHOLE = frozenset({OUTCOMES, DEAD_LETTERS, CONTROL})
"""Topics whose payloads are shown: what became of events. The others hold texts of documents and questions."""


@dataclass(frozen=True, slots=True)
class Entries:
    codec: Codec

    async def entry(self, record: FeedRecord, tenant: str, document: UUID | None) -> LogEntry | None:
        """None where the record is another tenant's, or is not about the document that is asked for."""
        stored = record.stored
        headers = {name: value.decode(errors="replace") for name, value in stored.record.headers.items()}
        whose, about = owner(stored), _uuid(headers.get("ce_document"))
        if whose not in (None, tenant) or (document is not None and about != document):
            return None
        event_id, source, event_type = clues(stored.record)
        return LogEntry(
            cursor=record.cursor,
            topic=stored.position.topic,
            partition=stored.position.partition,
            offset=stored.position.offset,
            key=stored.record.key.decode(errors="replace") if stored.record.key is not None else None,
            type=event_type,
            id=event_id,
            source=source,
            time=headers.get("ce_time"),
            appended_at=stored.appended_at.isoformat(),
            tenant=whose,
            document_id=about,
            cause=headers.get("ce_causationid"),
            how=headers.get("ce_how"),
            bytes=record.bytes,
            data=await self._data(stored),
        )

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


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
