"""Facts read again at their own places."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from schemas.errors import AnabranchError, Erased, NotFound, TransientError
from schemas.events import DocumentTranscribed, Fact
from schemas.ids import sha256_hex
from schemas.lineage import LogEvent
from schemas.ports.engines import Blobs
from schemas.ports.log import EventLog
from schemas.records import Position
from schemas.values import BlobRef, Transcript
from streams.codec import Codec


@dataclass(frozen=True, slots=True)
class Found:
    """A fact, or why there is none: `erased` and `gone` are no fault, `problem` is one."""

    place: str
    fact: Fact[Any] | None = None
    gone: str | None = None
    problem: str | None = None

    @property
    def event(self) -> LogEvent | None:
        fact = self.fact
        if fact is None or fact.position is None or fact.appended_at is None:
            return None
        return LogEvent(
            id=fact.id,
            type=fact.data.event_type(),
            topic=fact.position.topic,
            partition=fact.position.partition,
            offset=fact.position.offset,
            appended_at=fact.appended_at,
            time=fact.time,
            author=fact.source,
            how=fact.how,
            cause=fact.causation_id,
        )


@dataclass(frozen=True, slots=True)
class Bytes:
    """A blob's content, or why there is none."""

    place: str
    data: bytes | None = None
    gone: str | None = None
    problem: str | None = None


def place_of(position: Position) -> str:
    return f"{position.topic}[{position.partition}]@{position.offset}"


async def read_fact(log: EventLog, codec: Codec, position: Position) -> Found:
    """Raises TransientError where the log is away."""
    place = place_of(position)
    stored = await log.read_at(position)
    if stored is None:
        return Found(place, gone="the record is no longer in the log")
    try:
        return Found(place, await codec.decode(stored))
    except TransientError:
        raise
    except Erased as error:
        return Found(place, gone=f"erased: {error.detail}")
    except AnabranchError as error:
        return Found(place, problem=f"the record cannot be read: {error.detail} [{error.code}]")


async def read_blob(blobs: Blobs, ref: BlobRef) -> Bytes:
    """Compared with its hash. Raises EngineUnavailable where the store is away."""
    place = f"blob {ref.key}"
    try:
        data = await blobs.get(ref.key)
    except NotFound:
        return Bytes(place, problem="the blob is not there")
    found = sha256_hex(data)
    if found != ref.sha256:
        return Bytes(place, data, problem=f"its bytes have the hash {found}, not {ref.sha256}")
    return Bytes(place, data)


async def read_transcript(blobs: Blobs, data: DocumentTranscribed) -> tuple[Transcript | None, Bytes | None]:
    """The text of a fact, and the blob that it lies in where it does not lie in the fact."""
    if data.transcript is not None or data.blob is None:
        return data.transcript, None
    read = await read_blob(blobs, data.blob)
    if read.data is None or read.problem:
        return None, read
    try:
        return Transcript.model_validate(json.loads(gzip.decompress(read.data))), read
    except (OSError, EOFError, ValueError, ValidationError) as error:
        return None, Bytes(read.place, read.data, problem=f"it is no transcript: {error}")
