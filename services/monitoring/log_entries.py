"""Convert records of the log to feed entries. Payloads are included only for events about the
system.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from schemas.errors import AnabranchError, TransientError
from schemas.event_feed import LogEntry
from schemas.ports.feed import FeedRecord
from schemas.principals import Principal
from schemas.records import StoredRecord
from streams.codec import (
    DEFAULT_TENANT,
    Codec,
    get_base_topic,
    guess_producer_attributes,
    resolve_tenant,
)
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES

PAYLOAD_TOPICS = frozenset({OUTCOMES, DEAD_LETTERS, CONTROL})
"""Topics whose payloads are shown. The others contain texts of documents and queries."""


class ReadableDocuments(Protocol):
    async def filter_readable(
        self, caller: Principal, document_ids: Collection[UUID]
    ) -> set[UUID]: ...


@dataclass(frozen=True, slots=True)
class LogEntryBuilder:
    codec: Codec
    documents: ReadableDocuments

    async def build_entries(
        self, records: Sequence[FeedRecord], caller: Principal, document: UUID | None
    ) -> list[tuple[FeedRecord, LogEntry | None]]:
        """Pair each record with its entry.

        A caller limited to readers sees only entries of documents that it may read.
        """
        entries = [
            (record, await self.build_entry(record, caller.tenant, document)) for record in records
        ]
        if caller.readers is None:
            return entries
        document_ids = {
            entry.document_id
            for _, entry in entries
            if entry is not None and entry.document_id is not None
        }
        readable_ids = await self.documents.filter_readable(caller, document_ids)
        return [
            (record, entry if entry is not None and entry.document_id in readable_ids else None)
            for record, entry in entries
        ]

    async def build_entry(
        self, record: FeedRecord, tenant: str, document: UUID | None
    ) -> LogEntry | None:
        """Return None for records of other tenants, or of other documents than the requested one."""
        stored = record.stored_record
        headers = {
            name: value.decode(errors="replace") for name, value in stored.record.headers.items()
        }
        record_tenant, record_document = (
            resolve_tenant(stored),
            _parse_uuid(headers.get("ce_document")),
        )
        if record_tenant not in (None, tenant) or (
            document is not None and record_document != document
        ):
            return None
        event_id, source, event_type = guess_producer_attributes(stored.record)
        data = await self._decode_data(stored)
        if (
            record_tenant is None
            and not (event_type or "").startswith("generation.")
            and _parse_tenant(data) != tenant
        ):
            return None
        return LogEntry(
            cursor=record.cursor,
            topic=stored.position.topic,
            partition=stored.position.partition,
            offset=stored.position.offset,
            key=stored.record.key.decode(errors="replace")
            if stored.record.key is not None
            else None,
            type=event_type,
            id=event_id,
            source=source,
            time=headers.get("ce_time"),
            appended_at=stored.appended_at.isoformat(),
            tenant=record_tenant,
            document_id=record_document,
            cause=headers.get("ce_causationid"),
            how=headers.get("ce_how"),
            bytes=record.size_bytes,
            data=data,
        )

    async def _decode_data(self, stored: StoredRecord) -> dict[str, Any] | None:
        if (
            get_base_topic(stored.position.topic) not in PAYLOAD_TOPICS
            or stored.record.value is None
        ):
            return None
        try:
            data: dict[str, Any] = (await self.codec.decode(stored)).data.model_dump(
                mode="json", exclude_none=True
            )
        except TransientError:
            raise
        except AnabranchError as error:
            return {"unreadable": error.detail}
        return data


def _parse_tenant(data: Mapping[str, Any] | None) -> str:
    """Find the tenant of a record without a tenant header.

    Decisions about sources name theirs; the default is the default tenant.
    """
    source = (data or {}).get("source")
    tenant = (data or {}).get("tenant") or (
        source.get("tenant") if isinstance(source, dict) else None
    )
    return str(tenant or DEFAULT_TENANT)


def _parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
