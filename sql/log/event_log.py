"""The event log as a Postgres table, with one partition per topic.

Positions come from a sequence, so a lower one may be committed after a higher one. Readers
therefore read in (transaction, position) order and only below the snapshot horizon, the oldest
running transaction: no transaction can still add rows below it.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import asyncpg
import structlog

from schemas.batching import CallBatcher, split_by_cost
from schemas.errors import ConfigurationError
from schemas.ports.log import LOG_EPOCH
from schemas.topics import Headers, Position, Record, StoredRecord
from sql.database import Connection, Pool, fetch_row, fetch_value, load_query, read_columns
from sql.errors import translate_log_errors

# Bounds one transaction: readers wait for the oldest open one.
BATCH_RECORDS = 2000
BATCH_BYTES = 8_000_000
EXPIRY_INTERVAL = timedelta(minutes=30)
"""Time between two deletions of expired records."""
TOPIC_TABLES = ("log_readers", "expired_ranges", "topics")
UNFOLDED_RANGES, RANGES_PER_FOLD = 2000, 64
"""Expired ranges to keep unfolded per topic, and how many older ones are folded into one."""
EncodedHeader = str | dict[str, str]
FIRST_XID = 3
"""FirstNormalTransactionId: the first transaction id of any server."""
log = structlog.get_logger(__name__)


class PgLog:
    """Implements `schemas.ports.log.EventLog` over the table `events`.

    Concurrent appends share transactions: appends that arrive during a commit are written together
    by the next one.
    """

    is_in_database = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # An append is never split between batches: a failure concerns one transaction.
        self._appends = CallBatcher(
            self._append_together, lambda records: sum(map(_estimate_cost, records))
        )

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if not records:
            return []
        with translate_log_errors():
            # Shielded: the records of a cancelled caller may be written already.
            return await asyncio.shield(self._appends.run(records))

    def assign_order(self, position: Position, appended_at: datetime) -> list[int]:
        return [LOG_EPOCH, position.offset]

    async def create_topics(
        self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]
    ) -> None:
        rows = [(topic, count, retention_ms.get(topic)) for topic, count in partitions.items()]
        with translate_log_errors():
            await self._pool.executemany(load_query("create_topic"), rows)
            existing = await self._pool.fetch(load_query("topic_partitions"), list(partitions))
        for row in existing:
            if row["partitions"] != partitions[row["topic"]]:
                raise ConfigurationError(
                    f"Topic {row['topic']} has {row['partitions']} partitions, but the settings "
                    f"require {partitions[row['topic']]}.",
                    remedy=(
                        "Restore the previous ANABRANCH_KAFKA__PARTITIONS, or use another --data "
                        "folder."
                    ),
                )

    async def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics in short transactions, since readers wait for each.

        A repeated call resumes an interrupted one.
        """
        with translate_log_errors():
            while await self._pool.fetchval(
                load_query("delete_events"), list(topics), BATCH_RECORDS
            ):
                await asyncio.sleep(0)
            for table in TOPIC_TABLES:
                await self._pool.execute(load_query("delete_topic_rows", table=table), list(topics))

    async def list_topics(self) -> list[str]:
        """Return all topics, including those of generations."""
        return [row["topic"] for row in await fetch_log_rows(self._pool, "topics")]

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        [row] = await fetch_log_rows(self._pool, "offset_bounds", topic)
        return {0: (row[0], row[1])}

    async def read(
        self,
        topic: str,
        start: Mapping[int, int] | None = None,
        end: Mapping[int, int] | None = None,
        *,
        resume_after: Mapping[int, int] | None = None,
    ) -> AsyncGenerator[StoredRecord, None]:
        first = (start or {}).get(0, 0)
        after_last = (end or {}).get(0)
        if after_last is None:
            after_last = (await self.fetch_offset_bounds(topic))[0][1]
        # A range read once must be complete; the stage reader instead comes back for late rows.
        await self._wait_for_running_transactions()
        cursor = await self._resolve_cursor(topic, (resume_after or {}).get(0))
        while rows := await self._fetch_page(topic, cursor, first, after_last):
            for row in rows:
                yield to_stored_record(topic, row)
            # In reading order: by position alone, rows that commit late would be passed.
            cursor = (rows[-1]["xact"], rows[-1]["position"])

    async def read_at(self, position: Position) -> StoredRecord | None:
        with translate_log_errors():
            row = await self._pool.fetchrow(load_query("read_at"), position.offset, position.topic)
        return to_stored_record(position.topic, row) if row else None

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        """Return the retention plus the interval between calls of `expire`; None if unlimited."""
        retention = await self.fetch_min_retention(topic)
        return None if retention is None else retention + EXPIRY_INTERVAL

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        retention: timedelta | None = await fetch_log_value(self._pool, "topic_retention", topic)
        return retention

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        below = await fetch_log_value(self._pool, "expired_below", topic)
        return {0: below} if below else {}

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        position = await fetch_log_value(self._pool, "committed_position", group, topic)
        return {} if position is None else {0: position + 1}

    async def count_pending(
        self, group: str, topic: str, below: Mapping[int, int] | None = None
    ) -> int:
        # All topics share one sequence of positions, so a difference of offsets is no count.
        before = (below or {}).get(0)
        return int(await fetch_log_value(self._pool, "count_unread", group, topic, before))

    async def count_records(self, topic: str, below: Mapping[int, int] | None = None) -> int:
        return await self.count_pending("", topic, below)

    async def fetch_oldest_pending_time(self, group: str, topic: str) -> datetime | None:
        appended_at: datetime | None = await fetch_value(
            self._pool, "oldest_unread_time", group, topic
        )
        return appended_at

    async def has_reader(self, group: str, topic: str) -> bool | None:
        """Return whether a process holds the group's lease."""
        row = await fetch_row(self._pool, "stage_reader", group, topic)
        return bool(row and row["leased"])

    async def expire(self, unread: Collection[str] = ()) -> None:
        """Delete records past their topic's retention that every reader has finished."""
        with translate_log_errors():
            n_deleted = 1
            # Short transactions: readers wait for each of them.
            while n_deleted:
                async with self._pool.acquire() as connection, connection.transaction():
                    # Batches must commit in order: a reader that has seen one has seen all before
                    # it.
                    await lock_expired_batches(connection)
                    n_deleted = await connection.fetchval(
                        load_query("expire_events"), BATCH_RECORDS, list(unread)
                    )
                    await connection.execute(
                        load_query("fold_expired_ranges"), UNFOLDED_RANGES, RANGES_PER_FOLD
                    )

    async def close(self) -> None:
        """Wait for pending appends. The pool stays open."""
        await self._appends.drain()

    async def _append_together(self, appends: Sequence[Sequence[Record]]) -> list[list[Position]]:
        positions = iter(await self._insert([record for records in appends for record in records]))
        return [list(islice(positions, len(records))) for records in appends]

    async def _insert(self, records: list[Record]) -> list[Position]:
        positions: list[Position] = []
        for batch in split_by_cost(records, _estimate_cost, 1.0):
            columns = to_columns(batch, [None] * len(batch))
            offsets = await fetch_log_value(self._pool, "append_events", *columns)
            positions.extend(
                Position(record.topic, 0, offset)
                for record, offset in zip(batch, offsets, strict=True)
            )
        return positions

    async def _fetch_page(
        self, topic: str, after: tuple[int, int], first: int, after_last: int
    ) -> list[asyncpg.Record]:
        limits = (first, after_last, BATCH_RECORDS, BATCH_BYTES)
        return await fetch_log_rows(self._pool, "read_range", topic, *after, *limits)

    async def _resolve_cursor(self, topic: str, position: int | None) -> tuple[int, int]:
        """Return the reading-order cursor of a record, or one before all records if it no longer
        exists.
        """
        xact = position and await fetch_log_value(self._pool, "record_xact", position, topic)
        return (0, -1) if position is None or xact is None else (xact, position)

    async def _wait_for_running_transactions(self) -> None:
        """Wait until every transaction that is running now has ended.

        Each may still commit a position below those that the reader is about to pass.
        """
        xmax = await fetch_log_value(self._pool, "next_xact")
        while await fetch_log_value(self._pool, "is_running_below", xmax):
            await asyncio.sleep(0.02)


async def fetch_log_rows(pool: Pool, query: str, *parameters: Any) -> list[asyncpg.Record]:
    """Fetch rows for the log. Like `fetch_log_value`, raises LogUnavailable."""
    with translate_log_errors():
        return list(await pool.fetch(load_query(query), *parameters))


async def fetch_log_value(pool: Pool, query: str, *parameters: Any) -> Any:
    with translate_log_errors():
        return await pool.fetchval(load_query(query), *parameters)


def _estimate_cost(record: Record) -> float:
    """Return the share of a transaction that a record may take, by number or size."""
    return max(1 / BATCH_RECORDS, len(record.value or b"") / BATCH_BYTES)


async def lock_expired_batches(connection: Connection) -> None:
    """Lock the removal of records until the transaction ends. Call it before the first removal.

    Two concurrent removals would otherwise deadlock on each other's records.
    """
    await connection.execute(load_query("lock_expired_batches"))


def to_columns(records: Sequence[Record], applied_by: Sequence[str | None]) -> list[list[Any]]:
    """Return the parameters of `append_events`; `applied_by` names groups that need not read."""
    topics, keys, values = read_columns(records, "topic", "key", "value")
    headers = [encode_headers(record.headers) for record in records]
    return [topics, keys, headers, values, list(applied_by)]


def encode_headers(headers: Headers) -> str:
    """Encode headers as readable JSON; values that are not text are marked as base64."""
    return json.dumps({name: _encode(value) for name, value in headers.items()}, ensure_ascii=False)


def decode_headers(text: str) -> dict[str, bytes]:
    return {
        name: value.encode() if isinstance(value, str) else b64decode(value["base64"])
        for name, value in json.loads(text).items()
    }


def to_stored_record(topic: str, row: asyncpg.Record) -> StoredRecord:
    return StoredRecord(
        Record(topic, row["key"], row["value"], decode_headers(row["headers"])),
        Position(topic, 0, row["position"]),
        row["appended_at"],
    )


def _encode(value: bytes) -> EncodedHeader:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
    # jsonb cannot hold NUL.
    return text if "\0" not in text else {"base64": b64encode(value).decode()}


async def adopt_imported_log(pool: Pool) -> bool:
    """Restamp records whose transaction ids this server has not reached; return whether there were
    any.

    Such records, and all that is appended after them, would stay above the snapshot horizon and
    unreadable. They get the first transaction id, which orders them by position, and readers lose
    no record. Call it before any reader starts. Raises LogUnavailable.
    """
    with translate_log_errors():
        # Checked without a lock first: an ordinary start must not block appends.
        if not await pool.fetchval(load_query("has_foreign_xacts")):
            return False
        async with pool.acquire() as connection, connection.transaction():
            # Excludes appends and cursor updates, and another process that adopts the log.
            await connection.execute("lock table events, log_readers in share row exclusive mode")
            if not await connection.fetchval(load_query("has_foreign_xacts")):
                return False
            # Before the restamping: it compares cursors with the foreign transaction ids.
            await connection.execute(load_query("rebase_reader_cursors"), FIRST_XID)
            await connection.execute(load_query("restamp_events"), FIRST_XID)
            await connection.execute(load_query("delete_expired_ranges"))
    log.warning("imported_log_adopted", order="position")
    return True
