"""Facts read again at their own places."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from schemas.errors import AnabranchError, DataErased, NotFound, TransientError
from schemas.events import DocumentTranscribed, Event
from schemas.ids import sha256_hex
from schemas.lineage import LogEvent
from schemas.ports.engines import BlobStore
from schemas.ports.log import EventLog
from schemas.records import Position
from schemas.values import BlobRef, Transcript
from streams.codec import Codec


@dataclass(frozen=True, slots=True)
class EventEvidence:
    """A fact, or why there is none: `erased` and `gone` are no fault, `problem` is one."""

    location: str
    event: Event[Any] | None = None
    gone_reason: str | None = None
    problem: str | None = None

    @property
    def log_event(self) -> LogEvent | None:
        fact = self.event
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
            how=fact.pipeline_fingerprint,
            cause=fact.causation_id,
        )


@dataclass(frozen=True, slots=True)
class BlobEvidence:
    """A blob's content, or why there is none."""

    location: str
    data: bytes | None = None
    gone_reason: str | None = None
    problem: str | None = None


def format_position(position: Position) -> str:
    return f"{position.topic}[{position.partition}]@{position.offset}"


async def read_event(log: EventLog, codec: Codec, position: Position) -> EventEvidence:
    """Raises TransientError where the log is away."""
    location = format_position(position)
    stored = await log.read_at(position)
    if stored is None:
        return EventEvidence(location, gone_reason="the record is no longer in the log")
    try:
        return EventEvidence(location, await codec.decode(stored))
    except TransientError:
        raise
    except DataErased as error:
        return EventEvidence(location, gone_reason=f"erased: {error.detail}")
    except AnabranchError as error:
        return EventEvidence(location, problem=f"the record cannot be read: {error.detail} [{error.code}]")


async def read_blob(blobs: BlobStore, ref: BlobRef) -> BlobEvidence:
    """Compared with its hash. Raises EngineUnavailable where the store is away."""
    location = f"blob {ref.key}"
    try:
        data = await blobs.get(ref.key)
    except NotFound:
        return BlobEvidence(location, problem="the blob is not there")
    content_sha256 = sha256_hex(data)
    if content_sha256 != ref.sha256:
        return BlobEvidence(location, data, problem=f"its bytes have the hash {content_sha256}, not {ref.sha256}")
    return BlobEvidence(location, data)


async def read_transcript(blobs: BlobStore, data: DocumentTranscribed) -> tuple[Transcript | None, BlobEvidence | None]:
    """The text of a fact, and the blob that it lies in where it does not lie in the fact."""
    if data.transcript is not None or data.blob is None:
        return data.transcript, None
    blob_evidence = await read_blob(blobs, data.blob)
    if blob_evidence.data is None or blob_evidence.problem:
        return None, blob_evidence
    try:
        return Transcript.model_validate(json.loads(gzip.decompress(blob_evidence.data))), blob_evidence
    except (OSError, EOFError, ValueError, ValidationError) as error:
        return None, BlobEvidence(blob_evidence.location, blob_evidence.data, problem=f"it is no transcript: {error}")
