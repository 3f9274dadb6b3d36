"""Find and delete all rows of documents that are erased.

Rows of a life that began after the withdrawal stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.events import ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.events.control import Scope
from schemas.topics import Record
from sql.database import Connection, PgStore, acquire, load_query, read_values
from sql.errors import translate_database_errors
from sql.index.derived_tables import DERIVED_TABLES
from sql.index.entities import erase_corrections
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.log.event_log import encode_headers, lock_expired_batches

REVISION_TABLES = (
    *(table.name for table in DERIVED_TABLES.values()),
    "document_revisions",
    "document_amendments",
    "job_stages",
)
"""Tables with rows per revision. Rows that are not older than the withdrawal belong to another
life.
"""
DOCUMENT_TABLES = ("chunk_history", "engine_results", "judgements")
COUNTED_TABLES = (*REVISION_TABLES, *DOCUMENT_TABLES, "jobs")
AFFECTED_TABLES = (
    *COUNTED_TABLES,
    "documents",
    "dead_letters",
    "runs",
    "feedback",
    "facts",
    "entity_aliases",
    "entity_corrections",
    "standing_questions",
    "standing_terms",
    "answer_changes",
    "lexical_deltas",
    "source_changes",
    "source_rows",
    "source_notes",
    "keystore.keys",
)
# Stored with the counts of an erasure: events in the log, documents, documents that sources still
# have, documents that were sent again meanwhile, and the mark of completion.
EVENT_COUNT = "_events"
SUBJECT_COUNT = "_subjects"
SOURCE_COUNT = "_seen"
RESENT_COUNT = "_again"
DONE_MARKER = "_done"
COUNT_QUERIES = {
    "documents": "count_documents",
    "facts": "count_facts",
    "entity_aliases": "count_aliases",
    "entity_corrections": "count_corrections",
    "standing_questions": "count_questions",
    EVENT_COUNT: "erasable_events",
    SOURCE_COUNT: "source_names",
}
# Prefix of a table whose files may still contain deleted rows, and the mark that the write-ahead
# log may.
UNSCRUBBED_PREFIX, WAL_MARKER = "_unscrubbed ", "_wal"


@dataclass(frozen=True, slots=True)
class CitingRecords:
    """Runs and feedback that cite the erased documents; their keys are destroyed as well."""

    runs: tuple[UUID, ...]
    feedback: tuple[UUID, ...]


class PgErasure(PgStore):
    """Erasure over the tables. Every method may raise DatabaseUnavailable."""

    async def find_documents(self, tenant: str, scope: Scope, name: str) -> list[UUID]:
        """Return the documents in scope that have any rows or keys left."""
        return await self._fetch_column("erasable", tenant, scope, name)

    async def find_facts(self, tenant: str, scope: Scope, name: str) -> list[UUID]:
        """Return the facts in scope."""
        return await self._fetch_column("erasable_facts", tenant, scope, name)

    async def begin(self, receipt: UUID, tenant: str, scope: Scope, name: str) -> list[UUID]:
        """Record the documents in scope and count their rows for the receipt; return the documents.

        A repeated call returns the documents that the first one recorded.
        """
        subjects = await self._fetch_column("erasure_subjects", receipt)
        # Counted once: after a crash the rows may be half deleted.
        if await self.has_begun(receipt):
            return subjects
        documents = sorted({*subjects, *await self.find_documents(tenant, scope, name)})
        events = await self.fetch_event_ids(documents, before=await self.fetch_time())
        async with (
            acquire(self._pool) as connection,
            # One snapshot, so that the counts of the receipt add up.
            connection.transaction(isolation="repeatable_read"),
        ):
            await connection.executemany(
                load_query("add_erasure_subjects"), [(receipt, document) for document in documents]
            )
            counts_by_place = {
                table: await connection.fetchval(
                    load_query("count_document_rows", table=table), documents
                )
                for table in COUNTED_TABLES
            }
            for place, query in COUNT_QUERIES.items():
                counts_by_place[place] = await connection.fetchval(load_query(query), documents)
            counts_by_place["dead_letters"] = await connection.fetchval(
                load_query("count_dead_letters"), [*documents, *events]
            )
            n_entities = await connection.fetchval(load_query("count_named"), documents)
            n_facts = counts_by_place["facts"]
            counts_by_place[SUBJECT_COUNT] = len(documents) - n_facts - n_entities
            rows = [(receipt, place, count) for place, count in counts_by_place.items()]
            await connection.executemany(load_query("insert_erasure_count"), rows)
        return documents

    async def has_begun(self, receipt: UUID) -> bool:
        """Return whether the documents of this receipt were recorded."""
        return bool(await self._fetch_value("has_erasure_counts", receipt))

    async def add_subjects(self, unreadable: Mapping[UUID, Collection[UUID]]) -> None:
        """Add documents that became unreadable by a receipt's destroyed keys and that no row names.

        Receipts that are still open delete the remaining data of these documents when they resume.
        """
        await self._execute_many(
            "add_unreadable_subjects",
            [(receipt, sorted(documents)) for receipt, documents in unreadable.items()],
        )

    async def fetch_unwithdrawn_orders(
        self, tenant: str, documents: Collection[UUID]
    ) -> dict[UUID, list[int]]:
        """Return document → latest order, for documents that are not withdrawn."""
        return await self._fetch_pairs("unwithdrawn_orders", tenant, list(documents))

    async def has_pending_withdrawal(self, orders: Mapping[UUID, list[int]]) -> bool:
        """Return whether any of these documents is not yet withdrawn up to its order."""
        rows = await self._fetch("withdrawn_orders", list(orders))
        return any(row["withdrawn"] is None or row["withdrawn"] < orders[row["id"]] for row in rows)

    async def fetch_latest_orders(
        self, tenant: str, documents: Sequence[UUID]
    ) -> dict[UUID, list[int]]:
        """Return document → latest order, including withdrawals."""
        return await self._fetch_pairs("latest_orders", tenant, list(documents))

    async def fetch_time(self) -> datetime:
        """Return the current time by the clock of the database."""
        with translate_database_errors():
            database_time: datetime = await self._pool.fetchval("select clock_timestamp()")
        return database_time

    async def fetch_content_sizes(self, documents: Sequence[UUID]) -> dict[str, int]:
        """Return SHA-256 → size in bytes for the contents of all revisions."""
        return await self._fetch_pairs("content_sizes", list(documents))

    async def fetch_event_ids(self, documents: Sequence[UUID], *, before: datetime) -> list[UUID]:
        """Return internal ids of the producers' events; uploads only if they began `before`."""
        return await self._fetch_column("erasable_ids", list(documents), before)

    async def fetch_record_blobs(
        self, documents: Sequence[UUID], events: Sequence[UUID]
    ) -> list[str]:
        """Return blob keys of dead-lettered records; events that named no document are found by
        their ids.
        """
        return await self._fetch_column("record_blobs", [*documents, *events])

    async def erase_dead_letters(self, subjects: Sequence[UUID], blobs: Sequence[str]) -> None:
        """Delete dead letters about these documents or events whose blobs were deleted."""
        await self._execute("erase_dead_letters", list(subjects), list(blobs))

    async def find_citing_records(
        self, tenant: str, documents: Sequence[UUID], *, all_of_tenant: bool
    ) -> CitingRecords:
        if all_of_tenant:
            return CitingRecords(
                *[
                    tuple(await self._fetch_column("tenant_ids", tenant, table=table))
                    for table in ("runs", "feedback")
                ]
            )
        runs = await self._fetch_column(
            "citing_runs", tenant, [str(document) for document in documents]
        )
        feedback = await self._fetch_column("citing_feedback", tenant, list(documents), runs)
        return CitingRecords(tuple(runs), tuple(feedback))

    async def erase_citing_records(self, receipt: UUID, citing: CitingRecords) -> None:
        """Clear the contents of citing runs and delete citing feedback, in one transaction."""
        async with self._transaction() as connection:
            removed = {
                "runs": await _execute_and_count(
                    connection, load_query("erase_runs"), list(citing.runs)
                ),
                "feedback": await _execute_and_count(
                    connection, load_query("erase_feedback"), list(citing.feedback)
                ),
            }
            await self._add_counts(connection, receipt, removed)

    async def erase_rows(
        self,
        receipt: UUID,
        tenant: str,
        documents: Sequence[UUID],
        *,
        before: datetime,
        readable: bool,
        deleted_blobs: Sequence[str] | None = None,
    ) -> None:
        """Delete the documents' rows in one transaction. Jobs from `before` on stay, and so do dead
        letters with other blobs than these: they came since, and the blobs are found by them.

        Takes the documents' locks, which waits for workers that have not yet seen that the keys are
        destroyed.
        """
        document_ids, events = list(documents), await self.fetch_event_ids(documents, before=before)
        async with self._transaction() as connection:
            # First: a worker that decrypted an event earlier must not write after the deletion.
            await connection.execute(load_query("lock_erased_documents"), document_ids)
            n_source_changes = await _execute_and_count(
                connection, load_query("erase_source_changes"), tenant, document_ids
            )
            await connection.execute(load_query("erase_source_names"), document_ids)
            # Before the first record of the log is deleted, as in `PgLog.expire`.
            await lock_expired_batches(connection)
            await connection.execute(load_query("erase_ingress_events"), document_ids, events)
            await connection.execute(load_query("erase_ingress_payloads"), events)
            await connection.execute(
                load_query("erase_outcomes"), list(map(str, document_ids)), list(map(str, events))
            )
            for table in REVISION_TABLES:
                await connection.execute(
                    load_query("erase_withdrawn_rows", table=table), document_ids
                )
            for table in DOCUMENT_TABLES:
                await connection.execute(
                    load_query("erase_rows_of_documents", table=table), [*document_ids, *events]
                )
            await connection.execute(
                load_query("erase_dead_letters"), [*document_ids, *events], deleted_blobs
            )
            await connection.execute(load_query("erase_jobs"), document_ids, before)
            await connection.execute(load_query("erase_document_rows"), document_ids, readable)
            await connection.execute(load_query("delete_erased_owners"), document_ids)
            await connection.execute(load_query("erase_amendments"), document_ids)
            await connection.execute(load_query("erase_facts"), document_ids, readable)
            await connection.execute(load_query("erase_aliases"), document_ids)
            await connection.execute(load_query("erase_questions"), document_ids)
            if await connection.fetchval(load_query("count_corrections"), document_ids):
                await erase_corrections(connection, tenant, document_ids)
            # Cached answers may quote the erased documents.
            await record_index_change(connection, ALL_GENERATIONS, [tenant])
            # In the same transaction, so that a repeated erasure adds nothing twice.
            await self._add_counts(connection, receipt, {"source_changes": n_source_changes})

    async def replace_event(self, offset: int, record: Record) -> None:
        """Replace the content of a record of the Postgres log; its offset stays."""
        headers = encode_headers(record.headers)
        await self._execute("replace_event", record.topic, offset, headers, record.value)

    async def erase_late_jobs(self, documents: Sequence[UUID], *, before: datetime) -> None:
        """Delete jobs that were opened while the rows were deleted."""
        await self._execute("erase_jobs", list(documents), before)

    async def fetch_running_replays(self) -> dict[UUID, int]:
        """Return replay → records read, for replays that a process has leased."""
        return await self._fetch_pairs("running_replays")

    async def add_counts(self, receipt: UUID, counts: Mapping[str, int]) -> None:
        async with acquire(self._pool) as connection:
            await self._add_counts(connection, receipt, counts)

    async def record_items(self, receipt: UUID, place: str, items: Sequence[UUID]) -> None:
        """Record items before they are deleted, so that a resumed erasure counts each once."""
        await self._execute("record_erasure_items", receipt, place, list(items))

    async def is_done(self, receipt: UUID) -> bool:
        return DONE_MARKER in await self.fetch_counts(receipt)

    async def mark_done(self, receipt: UUID) -> None:
        await self._execute("erasure_done", receipt, DONE_MARKER)

    async def fetch_counts(self, receipt: UUID) -> dict[str, int]:
        """Return place → count, over all attempts."""
        return await self._fetch_pairs("erasure_counts", receipt)

    async def count_unmentioned_aliases(self, tenant: str) -> int:
        """Count the aliases from people, removed ones too, whose entity no document mentions."""
        return int(await self._fetch_value("count_unmentioned_aliases", tenant))

    async def _add_counts(
        self, connection: Connection, receipt: UUID, removed: Mapping[str, int]
    ) -> None:
        await connection.executemany(
            load_query("add_erasure_count"),
            [(receipt, place, count) for place, count in removed.items() if count],
        )


async def _execute_and_count(connection: Connection, query: str, *parameters: Any) -> int:
    """Execute a statement and return the number of affected rows."""
    # The command tag, such as "DELETE 3".
    return int((await connection.execute(query, *parameters)).rpartition(" ")[2])


async def write_erasure_event(
    connection: Connection, data: ErasureRequested | KeysDestroyed | ErasureCompleted, offset: int
) -> None:
    match data:
        case ErasureRequested():
            values = read_values(data, "receipt_id", "tenant", "scope", "subject", "requested_at")
            await connection.execute(load_query("insert_erasure"), *values)
        case KeysDestroyed():
            await connection.execute(load_query("destroy_keys"), data.tenant, data.keys)
        case ErasureCompleted():
            counts = read_values(data, "receipt_id", "documents", "removed", "events", "method")
            rest = read_values(data, "remains", "raw_until", "completed_at")
            await connection.execute(load_query("complete_erasure"), *counts, *rest)
            # Already deleted, unless the tables are rebuilt from events that stay readable.
            await connection.execute(load_query("erase_tenant_aliases"), data.receipt_id, offset)
            await connection.execute(load_query("erase_tenant_questions"), data.receipt_id)
            tenant = await connection.fetchval(load_query("erased_tenant"), data.receipt_id)
            if tenant is not None:
                await erase_corrections(connection, tenant, before_offset=offset)


class PgErasureReceipts(PgStore):
    """Receipts in the table `erasures`. An open one has no `completed_at`."""

    async def open(self, erasure: ErasureRequested) -> None:
        async with acquire(self._pool) as connection:
            await write_erasure_event(connection, erasure, 0)

    async def find(self, tenant: str, receipt_id: UUID) -> Mapping[str, Any] | None:
        row = await self._fetch_row("find_erasure", tenant, receipt_id)
        return dict(row) if row else None

    async def list_completed(self, tenant: str) -> list[UUID]:
        return await self._fetch_column("completed_erasures", tenant)

    async def count_unknown(self, receipts: Sequence[UUID]) -> int:
        """Return how many of these receipts are unknown."""
        return int(await self._fetch_value("count_unknown_erasures", list(receipts)))

    async def list_newest(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return await self._fetch_bodies("newest_erasures", tenant, limit)
