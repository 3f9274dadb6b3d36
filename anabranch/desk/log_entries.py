"""Records of the log as people see them: the envelope, and the payload of what is about the system itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from api.feeds import LogEntry
from schemas.errors import AnabranchError, TransientError
from schemas.ports.feed import FeedRecord
from schemas.principals import Principal
from schemas.records import StoredRecord
from streams.codec import DEFAULT_TENANT, Codec, base_topic, clues, owner
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES

TOLD_WHOLE = frozenset({OUTCOMES, DEAD_LETTERS, CONTROL})
"""Topics whose payloads are shown: what became of events. The others hold texts of documents and questions."""


class Readable(Protocol):
    async def readable(self, caller: Principal, documents: Collection[UUID]) -> set[UUID]: ...


@dataclass(frozen=True, slots=True)
class Entries:
    codec: Codec
    documents: Readable

    async def readable(self, records: Sequence[FeedRecord], caller: Principal, document: UUID | None) -> list[tuple[FeedRecord, LogEntry | None]]:
        """Each record with its entry. A caller that is limited to readers sees nothing but what is about documents that it may read."""
        found = [(record, await self.entry(record, caller.tenant, document)) for record in records]
        if caller.readers is None:
            return found
        named = {entry.document_id for _, entry in found if entry is not None and entry.document_id is not None}
        readable = await self.documents.readable(caller, named)
        return [(record, entry if entry is not None and entry.document_id in readable else None) for record, entry in found]

    async def entry(self, record: FeedRecord, tenant: str, document: UUID | None) -> LogEntry | None:
        """None where the record is another tenant's, or is not about the document that is asked for."""
        stored = record.stored
        headers = {name: value.decode(errors="replace") for name, value in stored.record.headers.items()}
        whose, about = owner(stored), _uuid(headers.get("ce_document"))
        if whose not in (None, tenant) or (document is not None and about != document):
            return None
        event_id, source, event_type = clues(stored.record)
        data = await self._data(stored)
        if whose is None and not (event_type or "").startswith("generation.") and _tenant_in(data) != tenant:
            return None
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
            data=data,
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


def _tenant_in(data: Mapping[str, Any] | None) -> str:
    """Of a record without an attribute that says so: a decision about a source names its tenant; what cannot be read is the default tenant's."""
    source = (data or {}).get("source")
    said = (data or {}).get("tenant") or (source.get("tenant") if isinstance(source, dict) else None)
    return str(said or DEFAULT_TENANT)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
