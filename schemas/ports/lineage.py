"""What the tables know of where a revision came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.records import Position
from schemas.values import BlobRef

Step = Literal["transcribed", "chunked", "embedded"]


@dataclass(frozen=True, slots=True)
class RevisionRow:
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
    accepted: Position
    received: Position | None
    content_sha256: str
    blob: BlobRef
    text_sha256: str | None
    markdown: str | None
    """Null where the text lies in a blob, or the revision is no longer the one that answers."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where an event of a revision stands, as this generation read it; `fact_id` is null where only its worker's note is left."""

    step: Step
    part: int
    position: Position
    fact_id: UUID | None
    generation: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's row. `vector` is little-endian float16."""

    text: str
    prefix: str
    char_start: int
    char_end: int
    vector: bytes | None


class LineageTables(Protocol):
    async def revision(self, caller: Principal, document_id: UUID, order: Sequence[int] | None, generation: str | None) -> RevisionRow | None:
        """The one of that order, else the one that answers in the live generation, else the latest."""

    async def places(self, document_id: UUID, order: Sequence[int], generation: str | None) -> list[PartPlace]:
        """In this generation, else in whichever worked on the revision, the same for all parts of a step; in the order of steps and parts."""

    async def chunk(self, generation: str, document_id: UUID, order: Sequence[int], chunk_id: UUID) -> StoredChunk | None:
        """While the revision answers in that generation."""
