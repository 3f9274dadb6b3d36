"""Everything that the tables hold of some documents, found and removed. Rows of a life that began after the withdrawal stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.events.erasure import Scope
from sql.errors import database_errors
from sql.gone_records import take_turn
from sql.index_changes import EVERY_GENERATION, note_change
from sql.pool import Connection, Pool
from sql.statements import statement

DERIVED = (
    *("revision_texts", "parent_chunks", "child_chunks", "chunk_vectors", "chunk_states", "entity_mentions", "relations", "claims", "settled"),
    *("document_revisions", "document_amendments", "job_stages"),
)
"""Rows of revisions. What is not older than the withdrawal belongs to another life."""
BY_DOCUMENT = ("chunk_history", "memo", "judgements")
COUNTED = (*DERIVED, *BY_DOCUMENT, "jobs")
TOUCHED = (*COUNTED, "documents", "dead_letters", "runs", "feedback", "lexical_deltas", "source_changes", "source_rows", "source_notes", "keystore.keys")
EVENTS, SUBJECTS, SEEN, AGAIN, DONE = "_events", "_subjects", "_seen", "_again", "_done"
UNSCRUBBED, WRITE_AHEAD = "_unscrubbed ", "_wal"
"""Before the name of a table whose files may still hold deleted rows; and whether the write-ahead log does."""
"""Kept with the counts of an erasure: what the log says of its documents, how many they are, how many their sources still have, how many were sent again and
again meanwhile, and that it is done."""


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
            return [row["id"] for row in await self._pool.fetch(statement("erasable"), tenant, scope, name)]

    async def begin(self, receipt: UUID, tenant: str, scope: Scope, name: str) -> list[UUID]:
        """The documents, as they were found first, and what there was of them then, counted for the receipt."""
        known = await self._subjects(receipt)
        if await self.is_begun(receipt):
            return known
        documents = sorted({*known, *await self.documents(tenant, scope, name)})
        events = await self.event_ids(documents, before=await self.now())
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
                await connection.executemany("insert into erasure_subjects values ($1, $2) on conflict do nothing", [(receipt, one) for one in documents])
                found = {table: await connection.fetchval(f"select count(*) from {table} where document_id = any($1)", documents) for table in COUNTED}
                found["documents"] = await connection.fetchval("select count(*) from documents where id = any($1) and latest is not null", documents)
                found["dead_letters"] = await connection.fetchval(
                    "select count(*) from dead_letters where coalesce(document_id, event_id) = any($1)", [*documents, *events]
                )
                found |= {EVENTS: await connection.fetchval(statement("erasable_events"), documents), SUBJECTS: len(documents)}
                found[SEEN] = await connection.fetchval(statement("source_names"), documents)
                rows = [(receipt, place, count) for place, count in found.items()]
                await connection.executemany("insert into erasure_counts values ($1, $2, $3) on conflict do nothing", rows)
        return documents

    async def is_begun(self, receipt: UUID) -> bool:
        """Whether its documents were found."""
        with database_errors():
            return bool(await self._pool.fetchval("select exists (select from erasure_counts where receipt_id = $1)", receipt))

    async def take_up(self, unreadable: Mapping[UUID, Collection[UUID]]) -> None:
        """Receipt → documents that it made unreadable, and that no row tells of any more: of those that are not done, what else there is goes when they go on."""
        query = "insert into erasure_subjects select receipt_id, unnest($2::uuid[]) from erasures where receipt_id = $1 and completed_at is null on conflict do nothing"
        with database_errors():
            await self._pool.executemany(query, [(receipt, sorted(documents)) for receipt, documents in unreadable.items()])

    async def unwithdrawn(self, tenant: str, documents: Collection[UUID]) -> dict[UUID, list[int]]:
        """Document → its latest order, of those that are not withdrawn."""
        query = "select id, latest from documents where tenant = $1 and id = any($2) and latest is not null and (withdrawn is null or withdrawn < latest)"
        with database_errors():
            return {row["id"]: row["latest"] for row in await self._pool.fetch(query, tenant, list(documents))}

    async def awaits_withdrawal(self, orders: Mapping[UUID, list[int]]) -> bool:
        """Whether one of these documents is not withdrawn up to its order yet."""
        query = "select id, withdrawn from documents where id = any($1)"
        with database_errors():
            rows = await self._pool.fetch(query, list(orders))
        return any(row["withdrawn"] is None or row["withdrawn"] < orders[row["id"]] for row in rows)

    async def latest(self, tenant: str, documents: Sequence[UUID]) -> dict[UUID, list[int]]:
        """Document → its latest order, a withdrawal's too."""
        query = "select id, latest from documents where tenant = $1 and id = any($2) and latest is not null"
        with database_errors():
            return {row["id"]: row["latest"] for row in await self._pool.fetch(query, tenant, list(documents))}

    async def now(self) -> datetime:
        """By the clock of the tables."""
        with database_errors():
            moment: datetime = await self._pool.fetchval("select clock_timestamp()")
        return moment

    async def content_hashes(self, documents: Sequence[UUID]) -> dict[str, int]:
        """SHA-256 → size, of all revisions."""
        query = "select distinct content_sha256, (blob ->> 'size')::bigint as size from document_revisions where document_id = any($1) order by 1"
        with database_errors():
            return {row["content_sha256"]: row["size"] for row in await self._pool.fetch(query, list(documents))}

    async def event_ids(self, documents: Sequence[UUID], *, before: datetime) -> list[UUID]:
        """Internal ids of what producers said of them; of uploads that were begun `before`."""
        with database_errors():
            return [row["id"] for row in await self._pool.fetch(statement("erasable_ids"), list(documents), before)]

    async def record_blobs(self, documents: Sequence[UUID], events: Sequence[UUID]) -> list[str]:
        """Of buried events, as they came; of those that named no document, by their own ids."""
        with database_errors():
            return [row["key"] for row in await self._pool.fetch(statement("record_blobs"), [*documents, *events])]

    async def traces(self, tenant: str, documents: Sequence[UUID], *, all_of_tenant: bool) -> Traces:
        with database_errors():
            if all_of_tenant:
                found = [await self._pool.fetch(f"select id from {table} where tenant = $1 order by id", tenant) for table in ("runs", "feedback")]
                return Traces(*(tuple(row["id"] for row in rows) for rows in found))
            runs = [row["id"] for row in await self._pool.fetch(statement("citing_runs"), tenant, [str(document) for document in documents])]
            rows = await self._pool.fetch(statement("citing_feedback"), tenant, list(documents), runs)
        return Traces(tuple(runs), tuple(row["id"] for row in rows))

    async def forget(self, receipt: UUID, traces: Traces) -> None:
        """What was said in questions and feedback, in one transaction."""
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                removed = {
                    "runs": await _changed(connection, statement("erase_runs"), list(traces.runs)),
                    "feedback": await _changed(connection, "delete from feedback where id = any($1)", list(traces.feedback)),
                }
                await self._count(connection, receipt, removed)

    async def sweep(self, receipt: UUID, tenant: str, documents: Sequence[UUID], *, before: datetime, readable: bool) -> None:
        """Their rows, in one transaction, and under the documents' locks: who writes of them now has not seen yet that their keys are gone, and is waited for.
        Jobs from `before` on stay."""
        some, events = list(documents), await self.event_ids(documents, before=before)
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("select from documents where id = any($1) order by id for update", some)
                changes = await _changed(connection, statement("erase_source_changes"), tenant, some)
                await connection.execute(statement("erase_source_names"), some)
                await take_turn(connection)
                await connection.execute(statement("erase_from_door"), some, events)
                await connection.execute(
                    "update handled set payload_sha256 = 'erased' where generation = '' and stage = 'receive' and event_id = any($1)", events
                )
                await connection.execute(statement("erase_outcomes"), list(map(str, some)), list(map(str, events)))
                for table in DERIVED:
                    await connection.execute(statement("erase_older").replace("the_table", table), some)
                for table in BY_DOCUMENT:
                    await connection.execute(f"delete from {table} where document_id = any($1)", [*some, *events])
                await connection.execute("delete from dead_letters where coalesce(document_id, event_id) = any($1)", [*some, *events])
                await connection.execute(statement("erase_jobs"), some, before)
                await connection.execute(statement("erase_document_rows"), some, readable)
                await connection.execute(statement("forget_owners"), some)
                await connection.execute(statement("erase_amendments"), some)
                await note_change(connection, EVERY_GENERATION, [tenant])
                await self._count(connection, receipt, {"source_changes": changes})

    async def tidy(self, documents: Sequence[UUID], *, before: datetime) -> None:
        """Of jobs that were opened while the rows were removed."""
        with database_errors():
            await self._pool.execute(statement("erase_jobs"), list(documents), before)

    async def replays_at_work(self) -> dict[UUID, int]:
        """How far each has come that somebody is at."""
        with database_errors():
            rows = await self._pool.fetch("select id, read from replays where state = 'running' and lease_until > clock_timestamp()")
        return {row["id"]: row["read"] for row in rows}

    async def note(self, receipt: UUID, counts: Mapping[str, int]) -> None:
        with database_errors():
            async with self._pool.acquire() as connection:
                await self._count(connection, receipt, counts)

    async def come_upon(self, receipt: UUID, place: str, items: Sequence[UUID]) -> None:
        """Before they go: whoever goes on after an interruption counts each once."""
        with database_errors():
            await self._pool.execute("insert into erasure_items select $1, $2, unnest($3::uuid[]) on conflict do nothing", receipt, place, list(items))

    async def is_done(self, receipt: UUID) -> bool:
        return DONE in await self.counts(receipt)

    async def done(self, receipt: UUID) -> None:
        with database_errors():
            await self._pool.execute(statement("erasure_done"), receipt, DONE)

    async def counts(self, receipt: UUID) -> dict[str, int]:
        """By place, over all tries."""
        with database_errors():
            rows = await self._pool.fetch("select place, removed from erasure_counts where receipt_id = $1 and removed > 0 order by place", receipt)
        return {row["place"]: row["removed"] for row in rows}

    async def _subjects(self, receipt: UUID) -> list[UUID]:
        with database_errors():
            rows = await self._pool.fetch("select subject from erasure_subjects where receipt_id = $1 order by subject", receipt)
        return [row["subject"] for row in rows]

    async def _count(self, connection: Connection, receipt: UUID, removed: Mapping[str, int]) -> None:
        query = (
            "insert into erasure_counts values ($1, $2, $3) on conflict (receipt_id, place) do update set removed = erasure_counts.removed + excluded.removed"
        )
        await connection.executemany(query, [(receipt, place, count) for place, count in removed.items() if count])


async def _changed(connection: Connection, query: str, *parameters: Any) -> int:
    """Rows."""
    return int((await connection.execute(query, *parameters)).rpartition(" ")[2])
