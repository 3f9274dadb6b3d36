"""Where things stand in the documents of a generation: to compare generations by place and not by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document as a generation shows it; its text inline, or under a blob key."""

    id: UUID
    names: Sequence[str]
    """By which people call it."""
    revision: int
    markdown: str | None
    blob_key: str | None


@dataclass(frozen=True, slots=True)
class Parent:
    id: UUID
    document_id: UUID
    char_start: int
    char_end: int
    text: str = ""


class PgPlaces:
    """Every call may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def documents(self, generation: str, tenant: str, ids: Sequence[UUID], names: Sequence[str]) -> list[ShownDocument]:
        rows = await self._fetch("judged_documents", generation, tenant, list(ids), list(names))
        return [ShownDocument(**row) for row in rows]

    async def parents_of(self, generation: str, document: UUID) -> list[Parent]:
        """In the order of the text, without what they say."""
        return [Parent(row["id"], document, row["char_start"], row["char_end"]) for row in await self._fetch("parents_of_document", generation, document)]

    async def parents(self, generation: str, ids: Sequence[UUID]) -> dict[UUID, Parent]:
        return {row["id"]: Parent(**row) for row in await self._fetch("parent_places", generation, list(ids))}

    async def _fetch(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        with database_errors():
            return list(await self._pool.fetch(statement(name), *parameters))
