"""Rebuild the inbox of stage `receive` from the events that it has accepted.

The inbox is no view of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from schemas.errors import DataErased, PermanentError
from schemas.events import AmendmentAccepted, DocumentAccepted, DocumentRemoved
from schemas.records import StoredRecord
from services.storage import Storage
from sql.inbox import ERASED_PAYLOAD
from streams.topics import ACCEPTED, DEAD_LETTERS


@dataclass(slots=True)
class AcceptedEvents:
    payload_hashes: dict[UUID, str] = field(default_factory=dict)
    """Internal id of a producer's event to the hash of its payload, or ERASED_PAYLOAD."""
    owners: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    """Document to tenant and source of its newest accepted revision."""
    erased_records: list[StoredRecord] = field(default_factory=list)
    """Accepted records whose keys are destroyed."""


async def load_accepted_events(
    storage: Storage, start_offsets: Mapping[str, Mapping[int, int]] | None = None
) -> AcceptedEvents:
    """Read the accepted events, from the given offsets by topic and partition.

    Events whose keys are missing are left out: stage `receive` admits them again if `raw` still holds
    them.
    """
    accepted, starts = AcceptedEvents(), start_offsets or {}
    async for stored in storage.log.read(DEAD_LETTERS, starts.get(DEAD_LETTERS)):
        try:
            await storage.codec.decode(stored)
        except DataErased:
            accepted.payload_hashes |= _mark_cause_erased(stored)
        except PermanentError:
            continue
    async for stored in storage.log.read(ACCEPTED, starts.get(ACCEPTED)):
        try:
            event = await storage.codec.decode(stored)
        except DataErased:
            accepted.payload_hashes |= _mark_cause_erased(stored)
            accepted.erased_records.append(stored)
            continue
        except PermanentError:
            continue
        if (
            isinstance(event.data, DocumentAccepted | AmendmentAccepted | DocumentRemoved)
            and event.causation_id is not None
        ):
            accepted.payload_hashes[event.causation_id] = event.data.payload_sha256
            if isinstance(event.data, DocumentAccepted):
                accepted.owners[event.data.document_id] = (
                    event.data.tenant,
                    event.data.origin.source,
                )
    return accepted


def parse_encryption_key(stored: StoredRecord) -> dict[UUID, str]:
    """Map the key that encrypted the record to its tenant; empty for a readable record."""
    key, tenant = (
        stored.record.headers.get(name, b"").decode() for name in ("ce_keyid", "ce_tenant")
    )
    return {UUID(key): tenant} if key else {}


def _mark_cause_erased(stored: StoredRecord) -> dict[UUID, str]:
    cause = stored.record.headers.get("ce_causationid")
    return {UUID(cause.decode()): ERASED_PAYLOAD} if cause else {}
