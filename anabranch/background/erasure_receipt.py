"""The receipt of an erasure: what was removed, and, as truly as it can be told, what remains and until when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from anabranch.composition.storage import Storage
from schemas.events import ErasureCompleted, ErasureRequested
from schemas.ports.log import EventLog
from sql.erasure import AGAIN, DONE, EVENTS, SEEN, SUBJECTS, PgErasure
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


async def written(request: ErasureRequested, storage: Storage, tables: PgErasure, now: datetime, *, readable_now: bool) -> ErasureCompleted:
    counts = await tables.counts(request.receipt_id)
    special = {place: counts.pop(place, 0) for place in (EVENTS, SUBJECTS, SEEN, AGAIN, DONE)}
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
        remains=[*_remains(raw, outcomes, since, readable_now), *_of_documents(special[SEEN], special[AGAIN])],
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


def _of_documents(seen: int, again: int) -> Iterator[str]:
    if seen:
        yield f"sources: {seen} of these documents are still there where they were taken from, and the readers remember their names"
    if again:
        yield f"{again} of these documents were sent again all the while: what came last is withdrawn, and is erased when it is asked for once more"
