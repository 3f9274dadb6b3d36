"""The log as a Postgres table: one partition a topic, read in (transaction, position) order below the snapshot horizon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import timedelta

import asyncpg

from schemas.errors import ConfigurationError, LogUnavailable
from schemas.records import Position, Record, StoredRecord
from sql.errors import log_errors
from sql.gone_records import take_turn
from sql.log_records import encode_headers, stored_record
from sql.pool import Pool
from sql.statements import statement

BATCH_RECORDS = 2000
BATCH_BYTES = 8_000_000
EXPIRE_EVERY = timedelta(minutes=30)
"""Between two looks for expired records."""
OF_A_TOPIC = ("log_readers", "gone_events", "topics")
KEPT_GONE, FOLDED_GONE = 2000, 64
"""So many of the latest records that a topic lost are known one by one at least; of those before, so many go into one row."""
Waiting = tuple[Sequence[Record], asyncio.Future[list[Position]]]


class PgLog:
    """EventLog over the table `events`. Concurrent appends share transactions: what arrives while one commits goes with the next."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if not records:
            return []
        done: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        self._waiting.append((records, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return await asyncio.shield(done)

    async def create_topics(self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]) -> None:
        rows = [(topic, count, retention_ms.get(topic)) for topic, count in partitions.items()]
        with log_errors():
            await self._pool.executemany("insert into topics (topic, partitions, retention_ms) values ($1, $2, $3) on conflict do nothing", rows)
            have = await self._pool.fetch("select topic, partitions from topics where topic = any($1::text[])", list(partitions))
        for row in have:
            if row["partitions"] != partitions[row["topic"]]:
                raise ConfigurationError(
                    f"Topic {row['topic']} has {row['partitions']} partitions, {partitions[row['topic']]} were asked for.",
                    remedy="Put ANABRANCH_KAFKA__PARTITIONS back, or use another --data folder.",
                )

    async def delete_topics(self, topics: Collection[str]) -> None:
        """In short transactions, which readers wait for; a call that was cut off is finished by the next one."""
        with log_errors():
            while await self._pool.fetchval(statement("delete_events"), list(topics), BATCH_RECORDS):
                await asyncio.sleep(0)
            for table in OF_A_TOPIC:
                await self._pool.execute(f"delete from {table} where topic = any($1::text[])", list(topics))

    async def topics(self) -> list[str]:
        """That are there, those of generations included."""
        with log_errors():
            rows = await self._pool.fetch("select topic from topics union select topic from events order by topic")
        return [row["topic"] for row in rows]

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        with log_errors():
            [row] = await self._pool.fetch("select coalesce(min(position), 0), coalesce(max(position) + 1, 0) from events where topic = $1", topic)
        return {0: (row[0], row[1])}

    async def read(
        self, topic: str, start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None, *, behind: Mapping[int, int] | None = None
    ) -> AsyncIterator[StoredRecord]:
        first = (start or {}).get(0, 0)
        after_last = (end or {}).get(0)
        if after_last is None:
            after_last = (await self.ends(topic))[0][1]
        await self._settled()
        cursor = await self._place(topic, (behind or {}).get(0))
        while rows := await self._page(topic, cursor, first, after_last):
            for row in rows:
                yield stored_record(topic, row)
            cursor = (rows[-1]["xact"], rows[-1]["position"])

    async def read_at(self, position: Position) -> StoredRecord | None:
        with log_errors():
            row = await self._pool.fetchrow(
                "select position, key, headers::text as headers, appended_at, value from events where position = $1 and topic = $2",
                position.offset,
                position.topic,
            )
        return stored_record(position.topic, row) if row else None

    async def keeps(self, topic: str) -> timedelta | None:
        """The look for expired records is its callers' business; how often they look is added."""
        kept = await self.keeps_at_least(topic)
        return None if kept is None else kept + EXPIRE_EVERY

    async def keeps_at_least(self, topic: str) -> timedelta | None:
        with log_errors():
            kept: timedelta | None = await self._pool.fetchval("select retention_ms * interval '1 millisecond' from topics where topic = $1", topic)
        return kept

    async def expired(self, topic: str) -> dict[int, int]:
        with log_errors():
            below = await self._pool.fetchval("select expired_below from topics where topic = $1", topic)
        return {0: below} if below else {}

    async def acknowledged(self, group: str, topic: str) -> dict[int, int]:
        with log_errors():
            position = await self._pool.fetchval("select position from log_readers where reader = $1 and topic = $2 and xact > '0'::xid8", group, topic)
        return {} if position is None else {0: position + 1}

    async def lag(self, group: str, topic: str, below: int | None = None) -> int:
        """How many records (those below a position) the group has still to finish. Positions are shared by all topics, so offsets cannot tell."""
        with log_errors():
            return int(
                await self._pool.fetchval(
                    "select count(*) from events e where e.topic = $2 and ($3::bigint is null or e.position < $3) and (e.xact, e.position) > "
                    "(select coalesce(max(xact), '0'::xid8), coalesce(max(position), 0) from log_readers where reader = $1 and topic = $2)",
                    group,
                    topic,
                    below,
                )
            )

    async def expire(self) -> None:
        """Drop what is older than its topic keeps, where every reader of the topic has finished it."""
        with log_errors():
            while await self._expire_some():
                """In short transactions, which readers wait for."""

    async def _expire_some(self) -> int:
        """What is known of lost records stays bounded."""
        async with self._pool.acquire() as connection, connection.transaction():
            await take_turn(connection)
            gone: int = await connection.fetchval(statement("expire_events"), BATCH_RECORDS)
            await connection.execute(statement("fold_gone"), KEPT_GONE, FOLDED_GONE)
        return gone

    async def close(self) -> None:
        """Finish what is being appended. The pool stays open: it is its opener's."""
        if self._writer:
            await self._writer

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._write_some(self._take())
        finally:
            self._writer = None

    async def _write_some(self, taken: list[Waiting]) -> None:
        try:
            positions = await self._insert([record for records, _ in taken for record in records])
        except Exception as error:
            _fail(taken, error)
        except BaseException:
            _fail(taken + self._waiting, LogUnavailable("Writing was broken off."))
            self._waiting.clear()
            raise
        else:
            _hand_out(taken, positions)

    def _take(self) -> list[Waiting]:
        """As many waiting appends as go into one transaction, one at least."""
        taken: list[Waiting] = []
        records = size = 0
        while self._waiting and (not taken or (records < BATCH_RECORDS and size < BATCH_BYTES)):
            taken.append(self._waiting.pop(0))
            records += len(taken[-1][0])
            size += sum(len(record.value or b"") for record in taken[-1][0])
        return taken

    async def _insert(self, records: list[Record]) -> list[Position]:
        positions: list[Position] = []
        for batch in _batches(records):
            columns = ([r.topic for r in batch], [r.key for r in batch], [encode_headers(r.headers) for r in batch], [r.value for r in batch])
            with log_errors():
                offsets = await self._pool.fetchval(statement("append_events"), *columns)
            positions.extend(Position(record.topic, 0, offset) for record, offset in zip(batch, offsets, strict=True))
        return positions

    async def _page(self, topic: str, after: tuple[int, int], first: int, after_last: int) -> list[asyncpg.Record]:
        with log_errors():
            return await self._pool.fetch(statement("read_range"), topic, *after, first, after_last, BATCH_RECORDS, BATCH_BYTES)

    async def _place(self, topic: str, position: int | None) -> tuple[int, int]:
        """Of a record in reading order; before all where it is not there (any more), so that nothing is passed over."""
        with log_errors():
            xact = position and await self._pool.fetchval("select xact from events where position = $1 and topic = $2", position, topic)
        return (0, -1) if position is None or xact is None else (xact, position)

    async def _settled(self) -> None:
        """Wait until every transaction that runs now has ended: it may hold a position that we are about to pass."""
        with log_errors():
            running = await self._pool.fetchval("select pg_snapshot_xmax(pg_current_snapshot())")
            while await self._pool.fetchval("select pg_snapshot_xmin(pg_current_snapshot()) < $1", running):
                await asyncio.sleep(0.02)


def _batches(records: list[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.value or b"")
    if batch:
        yield batch


def _hand_out(taken: list[Waiting], positions: list[Position]) -> None:
    start = 0
    for records, done in taken:
        if not done.done():
            done.set_result(positions[start : start + len(records)])
        start += len(records)


def _fail(taken: list[Waiting], error: Exception) -> None:
    for _, done in taken:
        if not done.done():
            done.set_exception(error)
