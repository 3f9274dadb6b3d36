"""The receipt of an erasure: what was removed, and, as truly as it can be told, what remains and until when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from anabranch.composition.storage import Storage
from schemas.events import ErasureCompleted, ErasureRequested
from schemas.ports.log import EventLog
from sql.erasure import AGAIN, DONE, EVENTS, SEEN, SUBJECTS, UNSCRUBBED, WRITE_AHEAD, PgErasure
from sql.keystore import PgKeystore
from sql.log import PgLog
from streams.topics import OUTCOMES, RAW

SEALED = "topics accepted, ocr_done, chunked, entities, embedded, queries, feedback and dead_letters, and those of other generations"


@dataclass(frozen=True, slots=True)
class Kept:
    """`until` is None where the topic forgets nothing."""

    topic: str
    until: datetime | None

    def __str__(self) -> str:
        end = f"until {self.until.isoformat()}" if self.until else "for ever"
        return f"topic {self.topic}, {_HOLDS[self.topic]}, {end}"


_HOLDS = {RAW: "as its producers sent it", OUTCOMES: "external ids, counts and reasons"}


async def written(
    request: ErasureRequested, storage: Storage, tables: PgErasure, now: datetime, *, readable_now: bool, versioned_blobs: bool
) -> ErasureCompleted:
    counts = await tables.counts(request.receipt_id)
    special = {place: counts.pop(place, 0) for place in (EVENTS, SUBJECTS, SEEN, AGAIN, DONE)}
    write_ahead = bool(counts.pop(WRITE_AHEAD, 0))
    unscrubbed = sorted(place.removeprefix(UNSCRUBBED) for place in counts if place.startswith(UNSCRUBBED))
    counts = {place: count for place, count in counts.items() if not place.startswith(UNSCRUBBED)}
    since = await PgKeystore(storage.pool).readable_since(request.tenant)
    raw = await _kept(storage.log, RAW, now)
    outcomes = None if isinstance(storage.log, PgLog) else await _kept(storage.log, OUTCOMES, now)
    destroyed = "keys" in counts or not readable_now
    return ErasureCompleted(
        receipt_id=request.receipt_id,
        tenant=request.tenant,
        documents=special[SUBJECTS],
        removed=counts,
        events=special[EVENTS] if destroyed and not readable_now else 0,
        method="keys destroyed" if destroyed else "nothing",
        remains=[
            *_remains(raw, outcomes, since, readable_now),
            *_of_database(unscrubbed, write_ahead, scrubbed=storage.key_file is not None),
            *_of_copies(request, versioned_blobs),
            *_of_documents(special[SEEN], special[AGAIN]),
        ],
        raw_until=raw.until,
        completed_at=now,
    )


async def _kept(log: EventLog, topic: str, now: datetime) -> Kept:
    """Of records that are there now."""
    span = await log.keeps(topic)
    return Kept(topic, now + span if span is not None else None)


def _remains(raw: Kept, outcomes: Kept | None, since: datetime | None, readable_now: bool) -> Iterator[str]:
    yield str(raw)
    if outcomes is not None:
        yield str(outcomes)
    if readable_now:
        yield f"{SEALED}: this tenant keeps its events readable"
    elif since is not None:
        yield f"{SEALED}: what was written while this tenant kept its events readable, which began at {since.isoformat()} at the latest"


def _of_database(unscrubbed: list[str], write_ahead: bool, *, scrubbed: bool) -> Iterator[str]:
    if not scrubbed:
        yield (
            "Postgres: deleted rows and wrapped keys in its files and write-ahead log until it uses their room again; "
            "the master key opens those keys until `anabranch keys rewrap` replaces it"
        )
    if unscrubbed:
        yield f"Postgres: deleted rows of {', '.join(unscrubbed)} in free space of their files until it is used again, or `anabranch db scrub` has run"
    if write_ahead:
        yield "Postgres: what was deleted in its write-ahead log until that is removed: a replication slot, or a setting, holds it"


def _of_copies(request: ErasureRequested, versioned_blobs: bool) -> Iterator[str]:
    yield "copies that were made before: backups, replicas and snapshots of database, key file, blobs and disks"
    if versioned_blobs:
        yield "blob store: earlier versions of the deleted objects, where its bucket keeps versions"
    if request.scope != "tenant":
        yield "questions and feedback that repeat words of it, and whose answers did not use it"
    yield "log files of the processes: ids of documents and events, external ids, idempotency keys"


def _of_documents(seen: int, again: int) -> Iterator[str]:
    if seen:
        yield f"sources: {seen} of these documents are still there where they were taken from, and the readers remember their names"
    if again:
        yield f"{again} of these documents were sent again all the while: what came last is withdrawn, and is erased when it is asked for once more"
