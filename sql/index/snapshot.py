"""Connections to one snapshot of a generation, the documents that a query searches in it, and views
of its chunks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from schemas.errors import DatabaseUnavailable
from schemas.generations import Generation
from schemas.ports.search import ChildStates, ChunkView, EntitySeed, ParentView, RankingFacts
from schemas.principals import ReaderScope
from schemas.questions import Filters
from sql.database import Connection, PgStore, Pool, load_query, read_columns
from sql.errors import translate_database_errors

BEGIN_READ_ONLY = (
    "begin isolation level repeatable read, read only; set local statement_timeout = '30s'"
)
"""The statement timeout bounds queries whose client no longer waits."""


class SnapshotConnections(PgStore):
    """Up to `limit` connections that import an exported snapshot, opened on demand.

    A connection whose statement failed or was cancelled is released, not reused.
    """

    def __init__(self, pool: Pool, snapshot: str, limit: int) -> None:
        super().__init__(pool)
        self._begin = f"{BEGIN_READ_ONLY}; set transaction snapshot '{snapshot}'"
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[PoolConnectionProxy] = []
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PoolConnectionProxy]:
        """Yield a connection for one call. Raises DatabaseUnavailable."""
        with translate_database_errors():
            async with self._slots:
                connection = self._idle.pop() if self._idle else await self._open_connection()
                try:
                    yield connection
                except BaseException:
                    self._release_in_background(connection)
                    raise
                # Its transaction stays open: the next call reads the same snapshot.
                self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            self._release_in_background(self._idle.pop())
        if self._releases:
            await asyncio.wait(self._releases)

    async def _open_connection(self) -> PoolConnectionProxy:
        connection = await self._pool.acquire()
        try:
            await connection.execute(self._begin)
        except BaseException:
            self._release_in_background(connection)
            raise
        return connection

    def _release_in_background(self, connection: PoolConnectionProxy) -> None:
        # A task of its own: a cancelled caller must not wait for the rollback, nor skip it.
        task = asyncio.create_task(rollback_and_release(self._pool, connection))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)


async def rollback_and_release(pool: Pool, connection: PoolConnectionProxy) -> None:
    """Roll back and release the connection, even if it is lost and has no transaction to end."""
    try:
        with suppress(DatabaseUnavailable), translate_database_errors():
            await connection.execute("rollback")
    finally:
        await pool.release(connection)


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


class SnapshotReader:
    """Reads one state of a generation, for a caller with these readers."""

    def __init__(
        self,
        generation: Generation,
        state: str,
        chunks_count: int,
        connections: SnapshotConnections,
        readers: ReaderScope,
    ) -> None:
        self.generation, self.state = generation, state
        self._chunks_count, self._connections, self._readers = chunks_count, connections, readers

    @asynccontextmanager
    async def _open_scope(
        self, tenant: str, filters: Filters
    ) -> AsyncIterator[tuple[PoolConnectionProxy, SearchScope]]:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            yield connection, scope

    async def _fetch(self, query: str, *parameters: Any) -> list[asyncpg.Record]:
        """Run a query whose first parameter is the generation."""
        async with self._connections.acquire() as connection:
            return await connection.fetch(load_query(query), self.generation.name, *parameters)

    async def _fetch_in_scope(
        self, query: str, tenant: str, filters: Filters, *parameters: Any
    ) -> list[asyncpg.Record]:
        """Run a query whose first parameters are the scope of the search."""
        async with self._open_scope(tenant, filters) as (connection, scope):
            if scope.is_empty:
                return []
            return await connection.fetch(load_query(query), *scope.to_parameters(), *parameters)


ENTRY_PATTERN = re.compile(r"(?<!\S)'((?:[^'\\]|''|\\\\)*+)':([\d,ABCD]+)")


class ChunkReader(SnapshotReader):
    """The chunks of a snapshot."""

    async def fetch_chunks(self, chunk_ids: Sequence[UUID], question: str) -> dict[UUID, ChunkView]:
        rows = await self._fetch("chunks", list(chunk_ids), None, self._readers, question)
        return {row["id"]: _to_chunk_view(row) for row in rows}

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> list[ChunkView]:
        rows = await self._fetch("chunks", None, list(parent_ids), self._readers, None)
        return [_to_chunk_view(row) for row in rows]

    async def fetch_child_states(self, parent_ids: Sequence[UUID]) -> list[ChildStates]:
        return [
            ChildStates(
                row["id"], row["parent_id"], _get_states(row), row["background_maxsim"] or 0.0
            )
            for row in await self._fetch("child_states", list(parent_ids), self._readers)
        ]

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> dict[UUID, ParentView]:
        rows = await self._fetch("parents", list(parent_ids), self._readers)
        return {row["parent_id"]: ParentView(**row) for row in rows}

    async def fetch_ranking_facts(
        self,
        tenant: str,
        chunk_ids: Sequence[UUID],
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
    ) -> dict[UUID, RankingFacts]:
        columns = read_columns(seeds, "type", "key")
        rows = await self._fetch(
            "ranking_facts", tenant, list(chunk_ids), self._readers, *columns, hops, fan_out
        )
        return {
            row["chunk_id"]: RankingFacts(
                row["document_date"],
                (
                    *row["tags"],
                    *([row["collection"]] if row["collection"] else []),
                    *(value for value in row["metadata"].values() if isinstance(value, str)),
                ),
                frozenset(row["seed_keys"]),
                row["hop"],
                frozenset(row["relation_types"]),
            )
            for row in rows
        }


def _to_chunk_view(row: asyncpg.Record) -> ChunkView:
    names = ("parent_id", "document_id", "revision", "external_id", "title", "source_uri", "kind")
    text = ("language", "text", "prefix", "char_start", "char_end", "spans", "ordinal")
    return ChunkView(
        chunk_id=row["id"],
        order=tuple(row["ord"]),
        positions=LexemePositions(row["words"]) if row["words"] else {},
        states=_get_states(row),
        **{name: row[name] for name in (*names, *text)},
    )


def _get_states(row: asyncpg.Record) -> tuple[str, int, int] | None:
    if row["blob_key"] is None:
        return None
    return row["blob_key"], row["blob_offset"], row["blob_length"]


class LexemePositions(Mapping[str, Sequence[int]]):
    """Lexeme → positions, which are parsed lazily: a frequent lexeme has dozens in each chunk."""

    __slots__ = ("_printed",)

    def __init__(self, words: str) -> None:
        self._printed = {
            lexeme.replace("''", "'").replace("\\\\", "\\"): positions
            for lexeme, positions in ENTRY_PATTERN.findall(words)
        }

    def __getitem__(self, lexeme: str) -> Sequence[int]:
        return _parse_positions(self._printed[lexeme])

    def __contains__(self, lexeme: object) -> bool:
        return lexeme in self._printed

    def __iter__(self) -> Iterator[str]:
        return iter(self._printed)

    def __len__(self) -> int:
        return len(self._printed)


def _parse_positions(printed: str) -> list[int]:
    numbers = printed.split(",")
    try:
        return list(map(int, numbers))
    except ValueError:
        # Only positions with weights, such as `3A`, need the slower way.
        return [int(number.rstrip("ABCD")) for number in numbers]


# Locate text in the documents of a generation, to compare generations by passage rather than by
# chunk.


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


class PgPassages(PgStore):
    """Passages over Postgres. Every method may raise DatabaseUnavailable."""

    async def fetch_documents(
        self, generation: str, tenant: str, ids: Sequence[UUID], names: Sequence[str]
    ) -> list[VisibleDocument]:
        rows = await self._fetch("visible_documents", generation, tenant, list(ids), list(names))
        return [VisibleDocument(**row) for row in rows]

    async def fetch_parent_spans(self, generation: str, document: UUID) -> list[ParentSpan]:
        """Return the spans of a document's parents in text order, without their texts."""
        return [
            ParentSpan(row["id"], document, row["char_start"], row["char_end"])
            for row in await self._fetch("document_parent_spans", generation, document)
        ]

    async def fetch_parents(self, generation: str, ids: Sequence[UUID]) -> dict[UUID, ParentSpan]:
        return {
            row["id"]: ParentSpan(**row)
            for row in await self._fetch("parent_spans", generation, list(ids))
        }
