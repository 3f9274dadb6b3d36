"""What the tables know of where a revision came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.records import Position
from schemas.values import BlobRef

LineageStep = Literal["transcribed", "chunked", "embedded"]


@dataclass(frozen=True, slots=True)
class RevisionLineage:
    """A revision as its row says. `received` is where the door read its event, where that is still known."""

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
    """Null where the text lies in a blob, or the revision is no longer the one that answers."""


@dataclass(frozen=True, slots=True)
class PartPosition:
    """Where an event of a revision stands, as this generation read it; `fact_id` is null where only its worker's note is left."""

    step: LineageStep
    part: int
    position: Position
    event_id: UUID | None
    generation: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's row. `vector` is little-endian float16."""

    text: str
    prefix: str
    char_start: int
    char_end: int
    vector: bytes | None


class LineageStore(Protocol):
    async def fetch_revision(self, caller: Principal, document_id: UUID, order: Sequence[int] | None, generation: str | None) -> RevisionLineage | None:
        """The one of that order, else the one that answers in the live generation, else the latest."""

    async def fetch_part_positions(self, document_id: UUID, order: Sequence[int], generation: str | None) -> list[PartPosition]:
        """In this generation, else in whichever worked on the revision, the same for all parts of a step; in the order of steps and parts."""

    async def fetch_chunk(self, generation: str, document_id: UUID, order: Sequence[int], chunk_id: UUID) -> StoredChunk | None:
        """While the revision answers in that generation."""
