"""What the filters of a question leave to be searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.principals import Readers
from schemas.questions import Filters
from sql.pool import Connection
from sql.statements import statement

FEW_DOCUMENTS = 2_000
FEW_CHUNKS = 20_000
"""So many are searched one by one: exactly, and as fast as through an index."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`few` names the documents when they are few; otherwise `filters` are looked up for each hit (None: there are none)."""

    generation: str
    tenant: str
    few: Sequence[UUID] | None = None
    filters: Filters | None = None
    readers: Readers = None
    """Names that the caller goes by; None for one without limits."""

    @property
    def empty(self) -> bool:
        return self.few is not None and not self.few

    def parameters(self) -> list[Any]:
        """$1 to $12 of every search statement."""
        if self.filters is None:
            return [self.generation, self.tenant, self.few, False, *([None] * 7), self.readers]
        return [self.generation, self.tenant, self.filters.document_ids or None, True, *_conditions(self.filters), self.readers]


async def resolve(connection: Connection, generation: str, tenant: str, filters: Filters, readers: Readers) -> Scope:
    if filters == Filters() and readers is None:
        return Scope(generation, tenant)
    rows = await connection.fetch(statement("scope"), generation, tenant, filters.document_ids or None, *_conditions(filters), readers, FEW_DOCUMENTS + 1)
    if len(rows) <= FEW_DOCUMENTS and (len(rows) == 1 or sum(row["chunks"] for row in rows) <= FEW_CHUNKS):
        return Scope(generation, tenant, few=[row["document_id"] for row in rows], readers=readers)
    return Scope(generation, tenant, filters=filters, readers=readers)


def _conditions(filters: Filters) -> list[Any]:
    """An empty filter is null and holds for all."""
    lists = [filters.collections, filters.tags, filters.external_ids, filters.languages]
    return [*(values or None for values in lists), filters.date_from, filters.date_to, filters.metadata or None]
