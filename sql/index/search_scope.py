"""Resolve the filters of a query to the scope of its search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.generations import Generation
from schemas.principals import ReaderScope
from schemas.questions import Filters
from sql.pool import Connection
from sql.query_loader import load_query

MAX_LISTED_DOCUMENTS = 2_000
"""Not a setting: the ids are a parameter of every search query, whose plan they bound."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The documents that a query searches.

    `listed_documents` lists them if they are few; otherwise `filters` are applied to each hit
    (None: no filters).
    """

    generation: str
    tenant: str
    listed_documents: Sequence[UUID] | None = None
    filters: Filters | None = None
    readers: ReaderScope = None
    """The caller's reader names; None for unlimited access."""

    @property
    def is_empty(self) -> bool:
        return self.listed_documents is not None and not self.listed_documents

    def to_parameters(self) -> list[Any]:
        """Return parameters $1 to $12 of every search query."""
        if self.filters is None:
            return [
                self.generation,
                self.tenant,
                self.listed_documents,
                False,
                *([None] * 7),
                self.readers,
            ]
        return [
            self.generation,
            self.tenant,
            self.filters.document_ids or None,
            True,
            *_to_conditions(self.filters),
            self.readers,
        ]


async def resolve_scope(
    connection: Connection,
    generation: Generation,
    tenant: str,
    filters: Filters,
    readers: ReaderScope,
) -> SearchScope:
    """List the documents that match, if an exact scan of their chunks is as fast as an index."""
    # Saves a query: nothing restricts the search.
    if filters == Filters() and readers is None:
        return SearchScope(generation.name, tenant)
    rows = await connection.fetch(
        load_query("search_scope"),
        generation.name,
        tenant,
        filters.document_ids or None,
        *_to_conditions(filters),
        readers,
        # One more tells "too many" from "exactly the limit".
        MAX_LISTED_DOCUMENTS + 1,
    )
    if len(rows) <= MAX_LISTED_DOCUMENTS and (
        len(rows) == 1 or sum(row["chunks"] for row in rows) <= generation.config.hnsw.exact_below
    ):
        return SearchScope(
            generation.name,
            tenant,
            listed_documents=[row["document_id"] for row in rows],
            readers=readers,
        )
    return SearchScope(generation.name, tenant, filters=filters, readers=readers)


def _to_conditions(filters: Filters) -> list[Any]:
    """Return the filter parameters; an empty filter is null and matches everything."""
    lists = [filters.collections, filters.tags, filters.external_ids, filters.languages]
    return [
        *(values or None for values in lists),
        filters.date_from,
        filters.date_to,
        filters.metadata or None,
    ]
