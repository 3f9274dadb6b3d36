"""The port to the stored lineage of a revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.topics import Position
from schemas.values import BlobRef

LineageStep = Literal["transcribed", "chunked", "embedded"]


@dataclass(frozen=True, slots=True)
class RevisionLineage:
    """The stored lineage of a revision.

    `received_position` is the position of its event on `raw`, if still known.
    """

    document_id: UUID
    external_id: str | None
    title: str | None
    tenant: str
    order: tuple[int, ...]
    revision: int
    generation: str | None
    source: str
    event_id: str
    accepted_id: UUID
    accepted_position: Position
    received_position: Position | None
    content_sha256: str
    blob: BlobRef
    text_sha256: str | None
    markdown: str | None
    """None if the text is in a blob, or the revision is no longer visible."""


@dataclass(frozen=True, slots=True)
class PartPosition:
    """The position of an event of a revision, as read in this generation.

    `event_id` is None if only the worker's record of it is left.
    """

    step: LineageStep
    part: int
    position: Position
    event_id: UUID | None
    generation: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A stored chunk. `vector` is little-endian float16."""

    text: str
    prefix: str
    char_start: int
    char_end: int
    vector: bytes | None


class LineageStore(Protocol):
    async def fetch_revision(
        self,
        caller: Principal,
        document_id: UUID,
        order: Sequence[int] | None,
        generation: str | None,
    ) -> RevisionLineage | None:
        """Return the revision of that order.

        Without an order, return the visible revision of the live generation, else the latest.
        """

    async def fetch_part_positions(
        self, document_id: UUID, order: Sequence[int], generation: str | None
    ) -> list[PartPosition]:
        """Return the positions in the order of steps and parts.

        They are those of this generation; for a step that it did not run, those of one generation
        that did.
        """

    async def fetch_text_position(
        self, caller: Principal, document_id: UUID, revision: int
    ) -> Position | None:
        """Return the position of the event that holds the text of a revision, if it is recorded.

        Raises NotFound unless the caller may read the revision.
        """

    async def fetch_chunk(
        self, generation: str, document_id: UUID, order: Sequence[int], chunk_id: UUID
    ) -> StoredChunk | None:
        """Return the chunk, or None unless the revision is visible in that generation."""


@dataclass(frozen=True, slots=True)
class RevisionArrival:
    """When and where the log received a revision, and the later withdrawal that removed it.

    `withdrawal` is None if no event withdrew it, or if its position is no longer known;
    `withdrawn_at` is the log's time of that event, which the tables do not know.
    """

    document_id: UUID
    revision: int
    title: str | None
    external_id: str | None
    received_at: datetime
    position: Position
    content: str
    """Equal for revisions in succession of which the later one changed nothing."""
    is_withdrawn: bool
    withdrawal: Position | None = None
    withdrawn_at: datetime | None = None


class RecordedText(Protocol):
    """A chunk or parent of a run record, with the hash of its text."""

    @property
    def id(self) -> UUID: ...

    @property
    def document_id(self) -> UUID: ...

    @property
    def text_sha256(self) -> str: ...


class RecordedTexts(Protocol):
    """Texts as past answers read them, including those of superseded revisions and dropped
    generations.
    """

    async def fetch_texts(
        self, caller: Principal, texts: Sequence[RecordedText]
    ) -> Mapping[UUID, str]:
        """Return texts by the id of chunk or parent, each with the recorded hash.

        Texts that no longer exist, such as those of an erased document, are omitted.
        """
