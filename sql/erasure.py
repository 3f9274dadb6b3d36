"""Everything that the tables hold of some documents, found and removed. Rows of a life that began after the withdrawal stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.events.erasure import Scope
from sql.errors import database_errors
from sql.pool import Connection, Pool
from sql.statements import statement

DERIVED = (
    *("revision_texts", "parent_chunks", "child_chunks", "chunk_vectors", "chunk_states", "entity_mentions", "relations", "claims", "settled"),
    *("document_revisions", "document_amendments"),
)
"""Rows of revisions. What is not older than the withdrawal belongs to another life."""
BY_DOCUMENT = ("chunk_history", "memo", "job_stages", "dead_letters", "jobs", "judgements")
EVENTS = "events"
"""The place, in the counts, of what the log says of these documents."""
COUNTED = (*DERIVED, *BY_DOCUMENT)
TOUCHED = (*DERIVED, *BY_DOCUMENT, "documents", "runs", "feedback", "lexical_deltas", "source_changes", "keystore.keys")


@dataclass(frozen=True, slots=True)
class Traces:
    """What cites these documents: its keys go too."""

    runs: tuple[UUID, ...]
    feedback: tuple[UUID, ...]


class PgErasure:
    """The tables' side of an erasure."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def documents(self, tenant: str, scope: Scope, name: str) -> list[UUID]:
        """Of which something is left."""
        with database_errors():
            rows = await self._pool.fetch(statement("erasable"), tenant, scope, name)
        return [row["id"] for row in rows]

    async def unwithdrawn(self, tenant: str, documents: Sequence[UUID]) -> list[UUID]:
        query = "select id from documents where tenant = $1 and id = any($2) and latest is not null and (withdrawn is null or withdrawn < latest) order by id"
        with database_errors():
            return [row["id"] for row in await self._pool.fetch(query, tenant, list(documents))]

    async def content_hashes(self, documents: Sequence[UUID]) -> list[str]:
        with database_errors():
            rows = await self._pool.fetch("select distinct content_sha256 from document_revisions where document_id = any($1) order by 1", list(documents))
        return [row["content_sha256"] for row in rows]

    async def record_blobs(self, documents: Sequence[UUID]) -> list[str]:
        """Of buried events, as they came."""
        with database_errors():
            rows = await self._pool.fetch(statement("record_blobs"), list(documents))
        return [row["key"] for row in rows]

    async def traces(self, tenant: str, documents: Sequence[UUID]) -> Traces:
        with database_errors():
            runs = [row["id"] for row in await self._pool.fetch(statement("citing_runs"), tenant, [str(document) for document in documents])]
            rows = await self._pool.fetch(statement("citing_feedback"), tenant, list(documents), runs)
        return Traces(tuple(runs), tuple(row["id"] for row in rows))

    async def take_stock(self, receipt: UUID, documents: Sequence[UUID]) -> None:
        """Count for the receipt what there is. The first count holds: a repeated one finds less."""
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
                found = {table: await connection.fetchval(f"select count(*) from {table} where document_id = any($1)", list(documents)) for table in COUNTED}
                found["documents"] = await connection.fetchval("select count(*) from documents where id = any($1)", list(documents))
                found[EVENTS] = await connection.fetchval(statement("erasable_events"), list(documents))
                rows = [(receipt, place, count) for place, count in found.items()]
                await connection.executemany("insert into erasure_counts values ($1, $2, $3) on conflict do nothing", rows)

    async def forget(self, receipt: UUID, traces: Traces) -> None:
        """What was said in questions and feedback, in one transaction."""
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                removed = {
                    "runs": await _delete(connection, statement("erase_runs"), list(traces.runs)),
                    "feedback": await _delete(connection, "delete from feedback where id = any($1)", list(traces.feedback)),
                }
                await self._count(connection, receipt, removed)

    async def sweep(self, receipt: UUID, tenant: str, documents: Sequence[UUID]) -> None:
        """Their rows, in one transaction."""
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                changes = await _delete(connection, statement("erase_source_changes"), tenant, list(documents))
                for table in DERIVED:
                    await connection.execute(statement("erase_older").replace("the_table", table), list(documents))
                for table in BY_DOCUMENT:
                    await connection.execute(f"delete from {table} where document_id = any($1)", list(documents))
                await connection.execute("delete from documents where id = any($1) and latest <= withdrawn", list(documents))
                await connection.execute(statement("erase_amendments"), list(documents))
                await self._count(connection, receipt, {"source_changes": changes})

    async def note(self, receipt: UUID, removed: Mapping[str, int]) -> None:
        with database_errors():
            async with self._pool.acquire() as connection:
                await self._count(connection, receipt, removed)

    async def counts(self, receipt: UUID) -> dict[str, int]:
        """By place, over all tries."""
        with database_errors():
            rows = await self._pool.fetch("select place, removed from erasure_counts where receipt_id = $1 and removed > 0 order by place", receipt)
        return {row["place"]: row["removed"] for row in rows}

    async def wipe(self) -> None:
        """Let Postgres use the room of what was deleted."""
        with database_errors():
            async with self._pool.acquire() as connection:
                for table in TOUCHED:
                    await connection.execute(f"vacuum {table}")

    async def _count(self, connection: Connection, receipt: UUID, removed: Mapping[str, int]) -> None:
        query = (
            "insert into erasure_counts values ($1, $2, $3) on conflict (receipt_id, place) do update set removed = erasure_counts.removed + excluded.removed"
        )
        await connection.executemany(query, [(receipt, place, count) for place, count in removed.items() if count])


async def _delete(connection: Connection, query: str, *parameters: Any) -> int:
    return int((await connection.execute(query, *parameters)).rpartition(" ")[2])
