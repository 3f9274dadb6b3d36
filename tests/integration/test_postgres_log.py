"""The Postgres log: commits out of order, and readers that take over from each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from schemas.errors import LogUnavailable
from schemas.ports.log import Partition
from schemas.topics import Record, StoredRecord
from sql.database import Pool, close_pool, open_pool
from sql.log.event_log import PgLog, adopt_imported_log
from sql.log.reader import PgSubscriber, PgSubscription, ReaderCursor, ReaderLease, TopicListener
from tests.support.eventually import eventually

INSERT_QUERY = (
    "insert into anabranch.events (topic, headers, value) values ('t', '{}', $1) returning position"
)


class PostgresCollectingSink:
    """A sink that collects records, and acknowledges at once if asked to."""

    def __init__(self, partition: Partition, *, acknowledge: bool, room: int = 1_000_000) -> None:
        self.partition, self.acknowledge, self.room = partition, acknowledge, room
        self.records: list[StoredRecord] = []
        self.closed = False

    @property
    def is_full(self) -> bool:
        return len(self.records) >= self.room

    @property
    def values(self) -> list[bytes]:
        return [record.record.value or b"" for record in self.records]

    def offer(self, record: StoredRecord) -> None:
        self.records.append(record)
        if self.acknowledge:
            self.partition.acknowledge(record.position.offset + 1)

    async def close(self) -> None:
        self.closed = True


class PostgresSubscriptionReader:
    def __init__(self) -> None:
        self.sinks: list[PostgresCollectingSink] = []

    @property
    def values(self) -> list[bytes]:
        return [value for sink in self.sinks for value in sink.values]

    async def wait_for_values(self, count: int) -> list[bytes]:
        return await eventually(lambda: self.values, lambda values: len(values) >= count)


@asynccontextmanager
async def run_subscription(
    pool: Pool, dsn: str, *, acknowledge: bool = True, room: int = 1_000_000, poll_s: float = 0.2
) -> AsyncIterator[PostgresSubscriptionReader]:
    found = PostgresSubscriptionReader()

    def open_sink(partition: Partition) -> PostgresCollectingSink:
        found.sinks.append(PostgresCollectingSink(partition, acknowledge=acknowledge, room=room))
        return found.sinks[-1]

    task = asyncio.create_task(
        PgSubscriber(pool, dsn, owner=uuid4(), poll_s=poll_s).subscribe("g", "t", open_sink).run()
    )
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=8, name="test")
    yield pool
    await close_pool(pool)


@pytest.fixture
def log(pool: Pool) -> PgLog:
    return PgLog(pool)


def make_record(value: str) -> Record:
    return Record("t", b"k", value.encode(), {"n": b"1", "raw": b"\xff\x00"})


async def test_binary_headers_round_trip(log: PgLog) -> None:
    [position] = await log.append([make_record("a")])
    stored = await log.read_at(position)
    assert stored is not None
    assert stored.record == make_record("a")


async def test_late_committing_transaction_is_not_skipped(
    pool: Pool, database: str, log: PgLog
) -> None:
    async with run_subscription(pool, database) as found, pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT_QUERY, b"slow")
        await log.append([make_record("fast")])
        await asyncio.sleep(0.1)
        assert found.values == []
        await transaction.commit()
        assert await found.wait_for_values(2) == [b"slow", b"fast"]


async def test_acknowledgement_follows_transaction_order_not_position(
    pool: Pool, database: str, log: PgLog
) -> None:
    async with pool.acquire() as old:
        transaction = old.transaction()
        await transaction.start()
        await old.fetchval("select pg_current_xact_id()")
        await log.append([make_record("young")])
        await old.fetchval(INSERT_QUERY, b"old")
        await transaction.commit()
    async with run_subscription(pool, database, acknowledge=False) as found:
        assert await found.wait_for_values(2) == [b"old", b"young"]
        found.sinks[0].partition.acknowledge(found.sinks[0].records[0].position.offset + 1)
    async with run_subscription(pool, database) as found:
        assert await found.wait_for_values(1) == [b"young"]


async def insert_generation(pool: Pool) -> None:
    await pool.execute(
        "insert into generations (name, config, how, topics, state) "
        "values ('g1', '{}', '{}', '{}', 'live')"
    )


async def append_applied(pool: Pool, value: bytes, *groups: str) -> None:
    await pool.execute(
        "insert into events (topic, headers, value, applied_by) values ('t', '{}', $1, $2)",
        value,
        list(groups),
    )


async def test_reader_passes_records_that_its_group_has_applied(
    pool: Pool, database: str, log: PgLog
) -> None:
    await insert_generation(pool)
    await append_applied(pool, b"applied", "other", "g")
    await append_applied(pool, b"applied by another group", "other")
    await log.append([make_record("new")])
    await append_applied(pool, b"last applied", "g")
    assert await log.count_pending("g", "t") == 2
    async with run_subscription(pool, database) as found:
        assert await found.wait_for_values(2) == [b"applied by another group", b"new"]
        last = await pool.fetchval("select max(position) from events")
        await eventually(
            lambda: pool.fetchval("select position from log_readers where reader = 'g'"),
            lambda position: position == last,
        )
    # Other readers of the log get all records.
    assert len([stored async for stored in log.read("t")]) == 4


async def test_applied_record_is_read_again_into_younger_tables(
    pool: Pool, database: str, log: PgLog
) -> None:
    await append_applied(pool, b"applied", "g")
    await insert_generation(pool)
    await append_applied(pool, b"applied later", "g")
    assert await log.count_pending("g", "t") == 1
    async with run_subscription(pool, database) as found:
        assert await found.wait_for_values(1) == [b"applied"]


async def test_passed_record_does_not_acknowledge_unfinished_ones(
    pool: Pool, database: str, log: PgLog
) -> None:
    await insert_generation(pool)
    await log.append([make_record("unfinished")])
    await append_applied(pool, b"applied", "g")
    async with run_subscription(pool, database, acknowledge=False) as found:
        assert await found.wait_for_values(1) == [b"unfinished"]
        await asyncio.sleep(0.3)
    async with run_subscription(pool, database) as found:
        assert await found.wait_for_values(1) == [b"unfinished"]


async def test_interrupted_bulk_read_misses_nothing(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as early:
        transaction = early.transaction()
        await transaction.start()
        await early.execute("select pg_current_xact_id()")
        first = await pool.fetchval(INSERT_QUERY, b"written first, by the later transaction")
        second = await early.fetchval(INSERT_QUERY, b"written second, by the earlier one")
        await transaction.commit()
    assert second > first
    [one, other] = [record async for record in log.read("t")]
    assert one.position.offset == second
    assert [record async for record in log.read("t", resume_after={0: one.position.offset})] == [
        other
    ]
    assert [record async for record in log.read("t", resume_after={0: other.position.offset})] == []


async def test_retention_is_bound_by_lowest_unacknowledged_position(
    pool: Pool, database: str, log: PgLog
) -> None:
    async with pool.acquire() as old:
        transaction = old.transaction()
        await transaction.start()
        await old.fetchval("select pg_current_xact_id()")
        [young] = await log.append([make_record("young")])
        await old.fetchval(INSERT_QUERY, b"old")
        await transaction.commit()
    async with run_subscription(pool, database, acknowledge=False) as found:
        await found.wait_for_values(2)
        sink = found.sinks[0]
        assert sink.partition.committed_offset == young.offset
        for stored, committed_offset in zip(
            sink.records, (young.offset, young.offset + 2), strict=True
        ):
            sink.partition.acknowledge(stored.position.offset + 1)
            await eventually(
                lambda: log.fetch_committed_offsets("g", "t"),
                lambda offsets, stored=stored: offsets == {0: stored.position.offset + 1},
            )
            await asyncio.sleep(0.05)
            assert sink.partition.committed_offset == committed_offset


async def test_readers_poll_while_listener_is_unavailable(
    pool: Pool,
    database: str,
    log: PgLog,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tries = 0

    async def broken(dsn: str, *, name: str) -> asyncpg.Connection:
        nonlocal tries
        tries += 1
        raise asyncpg.InvalidPasswordError("no")

    monkeypatch.setattr("sql.log.reader.connect", broken)
    monkeypatch.setattr("sql.log.reader.RECONNECT_S", 0.01)
    await log.append([make_record("a")])
    async with run_subscription(pool, database, poll_s=0.02) as found:
        assert await found.wait_for_values(1) == [b"a"]
        await log.append([make_record("b")])
        assert await found.wait_for_values(2) == [b"a", b"b"]
        await eventually(lambda: tries >= 3)
    assert "listener_failed" in capsys.readouterr().out


async def test_concurrent_appends_are_not_lost_or_reordered(
    pool: Pool, database: str, log: PgLog
) -> None:
    other = PgLog(pool)
    async with run_subscription(pool, database) as found:
        await asyncio.gather(
            *(
                writer.append([make_record(f"{i}-{n}") for n in range(5)])
                for i in range(60)
                for writer in (log, other)
            )
        )
        values = await found.wait_for_values(600)
    assert len(values) == 600
    assert set(values) == {f"{i}-{n}".encode() for i in range(60) for n in range(5)}
    assert await log.count_pending("g", "t") == 0


async def test_interrupted_append_raises_and_can_be_retried(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("lock table events")
        waiting = [asyncio.create_task(log.append([make_record("1")]))]
        await eventually(lambda: log._appends._runner is not None)
        await asyncio.sleep(0.05)
        waiting.append(asyncio.create_task(log.append([make_record("2")])))
        await asyncio.sleep(0)
        assert log._appends._runner is not None
        log._appends._runner.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [LogUnavailable] * 2
    [position] = await log.append([make_record("3")])
    assert [stored.record.value async for stored in log.read("t")] == [b"3"]
    assert await log.fetch_offset_bounds("t") == {0: (position.offset, position.offset + 1)}


async def test_full_sink_receives_nothing_until_resumed(
    pool: Pool, database: str, log: PgLog
) -> None:
    await log.append([make_record(str(n)) for n in range(10)])
    async with run_subscription(pool, database, room=3) as found:
        await found.wait_for_values(3)
        await asyncio.sleep(0.1)
        assert len(found.values) == 3
        found.sinks[0].room = 100
        found.sinks[0].partition.resume()
        assert await found.wait_for_values(10) == [str(n).encode() for n in range(10)]


async def test_lease_of_killed_process_is_taken_over_immediately(
    pool: Pool, database: str, log: PgLog
) -> None:
    dead = uuid4()
    await pool.execute(
        "insert into log_readers (reader, topic, lease_owner, lease_until) "
        "values ('g', 't', $1, now() + interval '1 hour')",
        dead,
    )
    async with run_subscription(pool, database) as found:
        await log.append([make_record("a")])
        assert await found.wait_for_values(1) == [b"a"]


async def test_reader_without_lease_cannot_move_the_offset(
    pool: Pool, database: str, log: PgLog
) -> None:
    await log.append([make_record("a")])
    async with run_subscription(pool, database, acknowledge=False) as found:
        await found.wait_for_values(1)
        connection = await asyncpg.connect(database)
        await pool.execute(
            "update log_readers set lease_owner = $1, lease_until = now() + interval '1 hour'",
            uuid4(),
        )
        reader = found.sinks[0]
        reader.partition.acknowledge(reader.records[0].position.offset + 1)
        await eventually(lambda: reader.closed)
        await found.wait_for_values(2)
        await connection.close()
    assert await log.fetch_committed_offsets("g", "t") == {}


async def test_reader_survives_lost_connection(pool: Pool, database: str, log: PgLog) -> None:
    async with run_subscription(pool, database) as found:
        await log.append([make_record("a")])
        await found.wait_for_values(1)
        async with pool.acquire() as other:
            await other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
        await asyncio.sleep(0.05)
        await log.append([make_record("b")])
        assert (await found.wait_for_values(2))[-1] == b"b"


async def test_bulk_read_waits_for_transactions_open_at_start(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT_QUERY, b"slow")
        await log.append([make_record("fast")])
        read = asyncio.create_task(anext(log.read("t")))
        await asyncio.sleep(0.05)
        assert not read.done()
        await transaction.commit()
        assert (await read).record.value == b"slow"


async def test_only_acknowledged_records_expire(pool: Pool, database: str, log: PgLog) -> None:
    await log.create_topics({"t": 1, "kept": 1}, retention_ms={"t": 0})
    await log.append([make_record("a"), Record("kept", None, b"b")])
    async with run_subscription(pool, database) as found:
        await found.wait_for_values(1)
    await log.append([make_record("unread")])
    await log.expire()
    assert [r.record.value async for r in log.read("t")] == [b"unread"]
    assert [r.record.value async for r in log.read("kept")] == [b"b"]


async def test_records_of_an_unread_topic_expire_by_time_alone(log: PgLog) -> None:
    await log.create_topics({"t": 1, "views": 1}, retention_ms={"t": 0, "views": 0})
    await log.append([make_record("a"), Record("views", None, b"b")])
    await log.expire(["views"])
    assert [r.record.value async for r in log.read("t")] == [b"a"]
    assert [r.record.value async for r in log.read("views")] == []


@dataclass(frozen=True)
class UnstableLease(ReaderLease):
    """A lease that loses its connection when a statement is interrupted."""

    renewal_started: asyncio.Event = field(default_factory=asyncio.Event)

    async def renew(self, cursor: ReaderCursor) -> None:
        with suppress(asyncio.CancelledError):
            while not self.renewal_started.is_set():
                self.renewal_started.set()
                await asyncio.Event().wait()
        raise LogUnavailable("the connection was lost")


async def test_reader_stops_when_cancellation_breaks_its_connection(
    pool: Pool, database: str, log: PgLog
) -> None:
    await log.create_topics({"t": 1}, retention_ms={})
    await log.append([make_record("a")])
    sinks = list[PostgresCollectingSink]()

    def open_sink(partition: Partition) -> PostgresCollectingSink:
        sinks.append(PostgresCollectingSink(partition, acknowledge=True, room=10))
        return sinks[-1]

    lease = UnstableLease(pool, "g", "t", uuid4(), 10.0)
    task = asyncio.create_task(
        PgSubscription(lease, TopicListener(database, str(lease.owner)), open_sink, 0.2).run()
    )
    async with asyncio.timeout(30):
        await lease.renewal_started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(sinks) == 1, "it did not begin again"


async def test_imported_log_resumes_at_stored_offsets(
    pool: Pool, database: str, log: PgLog
) -> None:
    """Restore the log as pg_dump leaves it."""
    await log.create_topics({"t": 1}, retention_ms={})
    await log.append([make_record("a"), make_record("b")])
    async with run_subscription(pool, database) as found:
        await found.wait_for_values(2)
    await log.append([make_record("c"), make_record("d")])
    for table in ("events", "log_readers"):
        await pool.execute(f"update {table} set xact = (xact::text::bigint + 1000000)::text::xid8")
    await log.append([make_record("e")])
    assert await adopt_imported_log(pool) is True
    await log.append([make_record("f")])
    async with run_subscription(pool, database) as found:
        assert await found.wait_for_values(4) == [b"c", b"d", b"e", b"f"]
    for table in ("events", "log_readers"):
        await pool.execute(f"update {table} set xact = (xact::text::bigint + 1000000)::text::xid8")
    [own] = await log.append([make_record("g")])
    assert await adopt_imported_log(pool) is True
    assert (await log.fetch_committed_offsets("g", "t"))[0] <= own.offset, (
        "what was appended here before is not taken for read"
    )
    assert await adopt_imported_log(pool) is False


async def test_log_of_same_server_is_not_imported(pool: Pool, log: PgLog) -> None:
    await log.create_topics({"t": 1}, retention_ms={})
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT_QUERY, b"slow")
        await log.append([make_record("fast")])
        assert await adopt_imported_log(pool) is False
        await transaction.commit()
    assert [r.record.value async for r in log.read("t")] == [b"slow", b"fast"]


async def test_retention_does_not_block_on_concurrent_erasure(
    pool: Pool, database: str, log: PgLog
) -> None:
    await log.create_topics({"t": 1}, retention_ms={"t": 0})
    await log.append([make_record("a")])
    async with run_subscription(pool, database) as found:
        await found.wait_for_values(1)
    async with pool.acquire() as erasing:
        async with erasing.transaction():
            await erasing.execute("update expired_batches set batch = batch + 1")
            expiring = asyncio.create_task(log.expire())
            await eventually(
                lambda: erasing.fetchval(
                    "select exists (select from pg_locks where not granted "
                    "and locktype in ('tuple', 'transactionid'))"
                )
            )
            assert await erasing.fetch(
                "select position from events where topic = 't' for update nowait"
            ), "each would wait for the other"
        await expiring
    assert [r async for r in log.read("t")] == []
