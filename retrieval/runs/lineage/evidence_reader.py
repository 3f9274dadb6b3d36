"""Read events, blobs and transcripts again at their recorded positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.errors import AnabranchError, DataErased, NotFound, TransientError
from schemas.events import DocumentTranscribed, Event
from schemas.ids import sha256_hex
from schemas.lineage import LogEvent
from schemas.ports.engines import BlobStore
from schemas.ports.lineage import PartPosition
from schemas.ports.log import EventLog
from schemas.topics import Position
from schemas.values import BlobRef, Transcript
from streams.codec import Codec

DataT = TypeVar("DataT")


@dataclass(frozen=True, slots=True)
class EventEvidence:
    """An event, or why there is none.

    `removal_reason` is legitimate (erased, or removed by retention); `problem` is a fault.
    """

    location: str
    event: Event[Any] | None = None
    removal_reason: str | None = None
    problem: str | None = None
    part: PartPosition | None = None
    """The row of the table that names the event."""

    def get_data(self, data_type: type[DataT]) -> DataT | None:
        """Return the data of the event, or None if there is no event of this type."""
        data = self.event.data if self.event else None
        return data if isinstance(data, data_type) else None

    @property
    def log_event(self) -> LogEvent | None:
        event = self.event
        if event is None or event.position is None or event.appended_at is None:
            return None
        return LogEvent(
            id=event.id,
            type=event.data.event_type(),
            topic=event.position.topic,
            partition=event.position.partition,
            offset=event.position.offset,
            appended_at=event.appended_at,
            time=event.time,
            author=event.source,
            how=event.pipeline_fingerprint,
            cause=event.causation_id,
        )


@dataclass(frozen=True, slots=True)
class BlobEvidence:
    """The content of a blob, or why it proves nothing."""

    location: str
    data: bytes | None = None
    problem: str | None = None


async def read_event(log: EventLog, codec: Codec, position: Position) -> EventEvidence:
    """Read and decode the event at `position`.

    Raises TransientError when the log is unavailable.
    """
    location = str(position)
    stored = await log.read_at(position)
    if stored is None:
        return EventEvidence(location, removal_reason="removed from the log by retention")
    try:
        return EventEvidence(location, await codec.decode(stored))
    # An unavailable store is no evidence: the trace fails instead of reporting a broken hop.
    except TransientError:
        raise
    except DataErased as error:
        return EventEvidence(location, removal_reason=f"erased: {error.detail}")
    except AnabranchError as error:
        return EventEvidence(
            location, problem=f"the record cannot be read: {error.detail} [{error.code}]"
        )


async def read_blob(blobs: BlobStore, ref: BlobRef) -> BlobEvidence:
    """Read the blob and check its hash. Raises EngineUnavailable when the store is unavailable."""
    location = f"blob {ref.key}"
    try:
        data = await blobs.get(ref.key)
    except NotFound:
        return BlobEvidence(location, problem="the blob is missing")
    content_sha256 = sha256_hex(data)
    if content_sha256 != ref.sha256:
        return BlobEvidence(
            location, data, problem=f"its bytes hash to {content_sha256}, not {ref.sha256}"
        )
    return BlobEvidence(location, data)


async def read_transcript(
    blobs: BlobStore, data: DocumentTranscribed
) -> tuple[Transcript | None, BlobEvidence | None]:
    """Return the transcript of an event and, when it is stored in a blob, the evidence of that
    blob.
    """
    if data.transcript is not None or data.blob is None:
        return data.transcript, None
    blob_evidence = await read_blob(blobs, data.blob)
    if blob_evidence.data is None or blob_evidence.problem:
        return None, blob_evidence
    try:
        return Transcript.decompress(blob_evidence.data), blob_evidence
    except (OSError, EOFError, ValueError, ValidationError) as error:
        return None, BlobEvidence(
            blob_evidence.location,
            blob_evidence.data,
            problem=f"it is not a valid transcript: {error}",
        )
