"""Request erasures, and read and write their receipts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from processors import TOPICS
from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import ErasureCompleted, ErasureRequested, FactRetracted
from schemas.events.control import Scope
from schemas.ids import content_id
from schemas.ports.log import EventLog
from schemas.topics import CONTROL, OUTCOMES, RAW
from services.erasure.key_destruction import read_unsealed_events
from services.publishing import EventPublisher
from services.storage import Storage
from sql.database import Pool
from sql.operations.erasure import (
    DONE_MARKER,
    EVENT_COUNT,
    RESENT_COUNT,
    SOURCE_COUNT,
    SUBJECT_COUNT,
    UNSCRUBBED_PREFIX,
    WAL_MARKER,
    PgErasure,
    PgErasureReceipts,
)
from sql.operations.keystore import PgKeystore

CE_SOURCE = "anabranch/api"


@dataclass(frozen=True, slots=True)
class ErasureService:
    pool: Pool
    publisher: EventPublisher

    async def request_erasure(self, tenant: str, scope: Scope, name: str) -> UUID:
        """Return the receipt's id once the request is durable.

        Raises NotFound for an unknown document, LogUnavailable.
        """
        if scope in ("document", "fact"):
            # One of them whatever the spelling of its UUID (RFC 9562, section 4). Other strings
            # match none.
            with suppress(ValueError):
                name = str(UUID(name))
        if scope == "tenant" and name != tenant:
            raise InvalidRequest(
                f"Tenant {tenant!r} may not erase tenant {name!r}.",
                code="FORBIDDEN_TENANT",
                remedy="Request the erasure as the tenant itself.",
            )
        if not await PgErasure(self.pool).find_documents(tenant, scope, name):
            raise unknown_resource_error(
                scope,
                repr(name),
                "List documents with GET /v1/documents, collections with GET /v1/collections, "
                "facts with GET /v1/facts.",
            )
        receipt = self.publisher.fresh_id()
        erasure = ErasureRequested(
            receipt_id=receipt,
            tenant=tenant,
            scope=scope,
            subject=name,
            requested_at=self.publisher.clock(),
        )
        event_id = content_id("event", "erasure", receipt)
        # Together, so that a rebuild does not restore facts whose events stay readable.
        records = [
            await self.publisher.encode(
                FactRetracted(fact_id=fact_id, tenant=tenant),
                CE_SOURCE,
                str(fact_id),
                content_id("event", "fact.retracted", fact_id),
                tenant,
            )
            for fact_id in await PgErasure(self.pool).find_facts(tenant, scope, name)
        ]
        records.append(
            await self.publisher.encode(erasure, CE_SOURCE, str(receipt), event_id, tenant)
        )
        await self.publisher.log.append(records)
        # Stage `erase` writes the same row when it consumes the event; until then the caller reads
        # this one.
        await PgErasureReceipts(self.pool).open(erasure)
        return receipt

    async def get_receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None:
        row = await PgErasureReceipts(self.pool).find(tenant, receipt_id)
        return _format_receipt(row) if row else None

    async def list_receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return [
            _format_receipt(row)
            for row in await PgErasureReceipts(self.pool).list_newest(tenant, limit)
        ]


def _format_receipt(row: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(row) | {"state": "running" if row["completed_at"] is None else "done"}
    return body | {"log": {"events": body.pop("events"), "method": body.pop("method")}}


_SEALED = [topic for topic in TOPICS if topic.is_sealed]
ENCRYPTED_TOPICS = (
    f"topics {', '.join(_SEALED)}, those of other generations, and aliases on topic {CONTROL}"
)


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """`until` is None if the topic has no retention."""

    topic: str
    until: datetime | None

    def __str__(self) -> str:
        end = f"until {self.until.isoformat()}" if self.until else "without limit"
        return f"topic {self.topic}, {_TOPIC_CONTENTS[self.topic]}, {end}"


_TOPIC_CONTENTS: dict[str, str] = {
    RAW: "as the producers sent it",
    OUTCOMES: "external ids, counts and reasons",
}


async def build_receipt(
    request: ErasureRequested,
    storage: Storage,
    tables: PgErasure,
    now: datetime,
    *,
    readable_now: bool,
    versioned_blobs: bool,
) -> ErasureCompleted:
    counts = await tables.fetch_counts(request.receipt_id)
    special_counts = {
        counter: counts.pop(counter, 0)
        for counter in (EVENT_COUNT, SUBJECT_COUNT, SOURCE_COUNT, RESENT_COUNT, DONE_MARKER)
    }
    write_ahead = bool(counts.pop(WAL_MARKER, 0))
    markers = [counter for counter in counts if counter.startswith(UNSCRUBBED_PREFIX)]
    for marker in markers:
        del counts[marker]
    unscrubbed = sorted(marker.removeprefix(UNSCRUBBED_PREFIX) for marker in markers)
    since = await PgKeystore(storage.pool).fetch_readable_since(request.tenant)
    # On the Postgres log the erasure deletes the records of `outcomes` itself (ADR 10).
    unsealed_topics = (RAW,) if storage.log.is_in_database else (RAW, OUTCOMES)
    retentions = [
        await _fetch_topic_retention(storage.log, topic, now)
        # A fact is on neither topic.
        for topic in (unsealed_topics if request.scope != "fact" else ())
    ]
    n_unsealed_events = 0
    if request.scope == "tenant" and not readable_now:
        async for _ in read_unsealed_events(storage, request.tenant):
            n_unsealed_events += 1
    destroyed = "keys" in counts or not readable_now
    return ErasureCompleted(
        receipt_id=request.receipt_id,
        tenant=request.tenant,
        documents=special_counts[SUBJECT_COUNT],
        removed=counts,
        events=special_counts[EVENT_COUNT] if destroyed and not readable_now else 0,
        method="keys destroyed" if destroyed else "nothing",
        remains=[
            *map(str, retentions),
            *_describe_readable_events(since, readable_now, n_unsealed_events),
            *_describe_aliases(await tables.count_unmentioned_aliases(request.tenant)),
            *_describe_database_remains(
                unscrubbed, write_ahead, is_scrubbed=storage.key_file is not None
            ),
            *_describe_copies(
                request, versioned_blobs, special_counts[SOURCE_COUNT], special_counts[RESENT_COUNT]
            ),
        ],
        raw_until=retentions[0].until if retentions else None,
        completed_at=now,
    )


async def _fetch_topic_retention(log: EventLog, topic: str, now: datetime) -> TopicRetention:
    """Compute when the newest record of the topic expires."""
    retention = await log.fetch_max_retention(topic)
    return TopicRetention(topic, now + retention if retention is not None else None)


def _describe_readable_events(
    since: datetime | None, readable_now: bool, n_unsealed_events: int
) -> Iterator[str]:
    if n_unsealed_events:
        yield f"topic {CONTROL}: unsealed events about entities: {n_unsealed_events}"
    if readable_now:
        yield f"{ENCRYPTED_TOPICS}: this tenant keeps its events readable"
    elif since is not None:
        yield (
            f"{ENCRYPTED_TOPICS}: events written while this tenant kept them readable, since "
            f"{since.isoformat()} or earlier"
        )


def _describe_aliases(n_aliases: int) -> Iterator[str]:
    if n_aliases:
        yield (
            f"entity aliases: {n_aliases} that people gave to entities which no document mentions; "
            "erasing the tenant deletes them"
        )


def _describe_database_remains(
    unscrubbed: list[str], write_ahead: bool, *, is_scrubbed: bool
) -> Iterator[str]:
    if not is_scrubbed:
        yield (
            "Postgres: deleted rows and wrapped keys in its files and write-ahead log until the "
            "space is reused; the master key opens those keys until `anabranch keys rewrap` "
            "replaces it"
        )
    if unscrubbed:
        yield (
            f"Postgres: deleted rows of {', '.join(unscrubbed)} in free space of their files "
            "until it is reused or `anabranch db scrub` has run"
        )
    if write_ahead:
        yield (
            "Postgres: deleted data in its write-ahead log, which a replication slot or a "
            "setting retains"
        )


def _describe_copies(
    request: ErasureRequested, versioned_blobs: bool, seen_count: int, resent_count: int
) -> Iterator[str]:
    yield "earlier copies: backups, replicas and snapshots of database, key file, blobs and disks"
    if versioned_blobs:
        yield "blob store: earlier versions of the deleted objects, if the bucket keeps versions"
    if request.scope != "tenant":
        yield "queries and feedback that repeat words of it, and whose answers did not use it"
    yield "log files of the processes: ids of documents and events, external ids, idempotency keys"

    if seen_count:
        yield (
            f"sources: {seen_count} of these documents still exist in their sources, and the "
            "readers remember their names"
        )
    if resent_count:
        yield (
            f"{resent_count} of these documents were sent again during the erasure: the last "
            "version is withdrawn; request another erasure to erase it"
        )
