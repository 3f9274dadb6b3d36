"""Locate text in the documents of a generation, to compare generations by passage rather than by
chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sql.pool import Pool, fetch_rows


@dataclass(frozen=True, slots=True)
class VisibleDocument:
    """The visible revision of a document. Its text is inline or under a blob key."""

    id: UUID
    names: Sequence[str]
    """External id and other names of the document."""
    revision: int
    markdown: str | None
    blob_key: str | None


@dataclass(frozen=True, slots=True)
class ParentSpan:
    id: UUID
    document_id: UUID
    char_start: int
    char_end: int
    text: str = ""


class PgPassages:
    """Passages over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_documents(
        self, generation: str, tenant: str, ids: Sequence[UUID], names: Sequence[str]
    ) -> list[VisibleDocument]:
        rows = await fetch_rows(
            self._pool, "visible_documents", generation, tenant, list(ids), list(names)
        )
        return [VisibleDocument(**row) for row in rows]

    async def fetch_parent_spans(self, generation: str, document: UUID) -> list[ParentSpan]:
        """Return the spans of a document's parents in text order, without their texts."""
        return [
            ParentSpan(row["id"], document, row["char_start"], row["char_end"])
            for row in await fetch_rows(self._pool, "document_parent_spans", generation, document)
        ]

    async def fetch_parents(self, generation: str, ids: Sequence[UUID]) -> dict[UUID, ParentSpan]:
        return {
            row["id"]: ParentSpan(**row)
            for row in await fetch_rows(self._pool, "parent_spans", generation, list(ids))
        }
