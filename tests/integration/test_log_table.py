"""What only the Postgres log must withstand: transactions that commit out of order, and readers that take over from each other."""

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
from schemas.records import Record, StoredRecord
from sql.doorbell import Doorbell
from sql.lease import Cursor, Lease
from sql.log import PgLog
from sql.log_reader import PgSubscriber, PgSubscription
from sql.pool import Pool, close_pool, open_pool
from sql.restored_log import take_over_log

INSERT = "insert into anabranch.events (topic, headers, value) values ('t', '{}', $1) returning position"


class Collector:
    """A sink that remembers, and acknowledges at once when asked to."""

    def __init__(self, partition: Partition, *, acknowledge: bool, room: int = 1_000_000) -> None:
        self.partition, self.acknowledge, self.room = partition, acknowledge, room
        self.records: list[StoredRecord] = []
        self.closed = False

    @property
    def full(self) -> bool:
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


class Reading:
    def __init__(self) -> None:
        self.sinks: list[Collector] = []

    @property
    def values(self) -> list[bytes]:
        return [value for sink in self.sinks for value in sink.values]

    async def until(self, count: int) -> list[bytes]:
        async with asyncio.timeout(10):
            while len(self.values) < count:
                await asyncio.sleep(0.005)
        return self.values


@asynccontextmanager
async def reading(pool: Pool, dsn: str, *, acknowledge: bool = True, room: int = 1_000_000, poll_s: float = 0.2) -> AsyncIterator[Reading]:
    found = Reading()

    def open_sink(partition: Partition) -> Collector:
        found.sinks.append(Collector(partition, acknowledge=acknowledge, room=room))
        return found.sinks[-1]

    task = asyncio.create_task(PgSubscriber(pool, dsn, owner=uuid4(), poll_s=poll_s).subscribe("g", "t", open_sink).run())
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


def record(value: str) -> Record:
    return Record("t", b"k", value.encode(), {"n": b"1", "raw": b"\xff\x00"})


async def test_headers_that_are_no_text_come_back_as_they_were(log: PgLog) -> None:
    [position] = await log.append([record("a")])
    stored = await log.read_at(position)
    assert stored is not None
    assert stored.record == record("a")


async def test_a_slow_transaction_that_commits_late_is_not_passed_over(pool: Pool, database: str, log: PgLog) -> None:
    async with reading(pool, database) as found, pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT, b"slow")
        await log.append([record("fast")])
        await asyncio.sleep(0.1)
        assert found.values == []
        await transaction.commit()
        assert await found.until(2) == [b"slow", b"fast"]


async def test_an_older_transaction_with_the_higher_position_comes_first_and_its_acknowledgement_covers_only_itself(
    pool: Pool, database: str, log: PgLog
) -> None:
    async with pool.acquire() as old:
        transaction = old.transaction()
        await transaction.start()
        await old.fetchval("select pg_current_xact_id()")
        await log.append([record("young")])
        await old.fetchval(INSERT, b"old")
        await transaction.commit()
    async with reading(pool, database, acknowledge=False) as found:
        assert await found.until(2) == [b"old", b"young"]
        found.sinks[0].partition.acknowledge(found.sinks[0].records[0].position.offset + 1)
    async with reading(pool, database) as found:
        assert await found.until(1) == [b"young"]


async def test_bulk_reading_that_was_interrupted_misses_nothing_though_positions_do_not_grow_in_reading_order(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as early:
        transaction = early.transaction()
        await transaction.start()
        await early.execute("select pg_current_xact_id()")
        first = await pool.fetchval(INSERT, b"written first, by the later transaction")
        second = await early.fetchval(INSERT, b"written second, by the earlier one")
        await transaction.commit()
    assert second > first
    [one, other] = [record async for record in log.read("t")]
    assert one.position.offset == second
    assert [record async for record in log.read("t", behind={0: one.position.offset})] == [other]
    assert [record async for record in log.read("t", behind={0: other.position.offset})] == []


async def test_what_may_come_again_bounds_what_is_kept_though_a_higher_position_is_done(pool: Pool, database: str, log: PgLog) -> None:
    async with pool.acquire() as old:
        transaction = old.transaction()
        await transaction.start()
        await old.fetchval("select pg_current_xact_id()")
        [young] = await log.append([record("young")])
        await old.fetchval(INSERT, b"old")
        await transaction.commit()
    async with reading(pool, database, acknowledge=False) as found:
        await found.until(2)
        sink = found.sinks[0]
        assert sink.partition.kept == young.offset
        for stored, kept in zip(sink.records, (young.offset, young.offset + 2), strict=True):
            sink.partition.acknowledge(stored.position.offset + 1)
            async with asyncio.timeout(10):
                while await log.acknowledged("g", "t") != {0: stored.position.offset + 1}:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert sink.partition.kept == kept


async def test_a_doorbell_that_cannot_listen_lets_its_readers_poll_and_tries_again(
    pool: Pool, database: str, log: PgLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = 0

    async def broken(dsn: str, *, name: str) -> asyncpg.Connection:
        nonlocal tries
        tries += 1
        raise asyncpg.InvalidPasswordError("no")

    monkeypatch.setattr("sql.doorbell.connect", broken)
    monkeypatch.setattr("sql.doorbell.RECONNECT_S", 0.01)
    await log.append([record("a")])
    async with reading(pool, database, poll_s=0.02) as found:
        assert await found.until(1) == [b"a"]
        await log.append([record("b")])
        assert await found.until(2) == [b"a", b"b"]
        async with asyncio.timeout(10):
            while tries < 3:
                await asyncio.sleep(0.005)
    assert "listening for events failed" in capsys.readouterr().out


async def test_nothing_is_lost_or_reordered_under_concurrent_appends(pool: Pool, database: str, log: PgLog) -> None:
    other = PgLog(pool)
    async with reading(pool, database) as found:
        await asyncio.gather(*(writer.append([record(f"{i}-{n}") for n in range(5)]) for i in range(60) for writer in (log, other)))
        values = await found.until(600)
    assert len(values) == 600
    assert set(values) == {f"{i}-{n}".encode() for i in range(60) for n in range(5)}
    assert await log.lag("g", "t") == 0


async def test_whoever_appends_is_told_when_writing_is_broken_off_and_may_append_again(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("lock table events")
        waiting = [asyncio.create_task(log.append([record("1")]))]
        while log._writer is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        waiting.append(asyncio.create_task(log.append([record("2")])))
        await asyncio.sleep(0)
        log._writer.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [LogUnavailable] * 2
    [position] = await log.append([record("3")])
    assert [stored.record.value async for stored in log.read("t")] == [b"3"]
    assert await log.ends("t") == {0: (position.offset, position.offset + 1)}


async def test_a_full_sink_gets_nothing_until_it_is_resumed(pool: Pool, database: str, log: PgLog) -> None:
    await log.append([record(str(n)) for n in range(10)])
    async with reading(pool, database, room=3) as found:
        await found.until(3)
        await asyncio.sleep(0.1)
        assert len(found.values) == 3
        found.sinks[0].room = 100
        found.sinks[0].partition.resume()
        assert await found.until(10) == [str(n).encode() for n in range(10)]


async def test_a_second_reader_waits_and_takes_over_when_the_first_stops(pool: Pool, database: str, log: PgLog) -> None:
    async with reading(pool, database) as first:
        await log.append([record("a")])
        await first.until(1)
        async with reading(pool, database) as waiting:
            await log.append([record("b")])
            await first.until(2)
            assert waiting.sinks == []
    async with reading(pool, database) as third:
        await log.append([record("c")])
        assert await third.until(1) == [b"c"]


async def test_the_lease_of_a_killed_process_is_taken_over_without_waiting_for_its_end(pool: Pool, database: str, log: PgLog) -> None:
    dead = uuid4()
    await pool.execute("insert into log_readers (reader, topic, lease_owner, lease_until) values ('g', 't', $1, now() + interval '1 hour')", dead)
    async with reading(pool, database) as found:
        await log.append([record("a")])
        assert await found.until(1) == [b"a"]


async def test_a_reader_whose_lease_was_taken_closes_its_sink_and_its_late_acknowledgements_move_nothing(pool: Pool, database: str, log: PgLog) -> None:
    await log.append([record("a")])
    async with reading(pool, database, acknowledge=False) as found:
        await found.until(1)
        connection = await asyncpg.connect(database)
        await pool.execute("update log_readers set lease_owner = $1, lease_until = now() + interval '1 hour'", uuid4())
        reader = found.sinks[0]
        reader.partition.acknowledge(reader.records[0].position.offset + 1)
        while not reader.closed:
            await asyncio.sleep(0.01)
        await found.until(2)
        await connection.close()
    assert await log.acknowledged("g", "t") == {}


async def test_reading_waits_out_a_lost_connection(pool: Pool, database: str, log: PgLog) -> None:
    async with reading(pool, database) as found:
        await log.append([record("a")])
        await found.until(1)
        async with pool.acquire() as other:
            await other.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
        await asyncio.sleep(0.05)
        await log.append([record("b")])
        assert (await found.until(2))[-1] == b"b"


async def test_bulk_reading_waits_for_transactions_that_were_open_when_it_began(pool: Pool, log: PgLog) -> None:
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT, b"slow")
        await log.append([record("fast")])
        read = asyncio.create_task(anext(log.read("t")))
        await asyncio.sleep(0.05)
        assert not read.done()
        await transaction.commit()
        assert (await read).record.value == b"slow"


async def test_expired_records_go_and_those_that_nobody_has_read_yet_stay(pool: Pool, database: str, log: PgLog) -> None:
    await log.create_topics({"t": 1, "kept": 1}, retention_ms={"t": 0})
    await log.append([record("a"), Record("kept", None, b"b")])
    async with reading(pool, database) as found:
        await found.until(1)
    await log.append([record("unread")])
    await log.expire()
    assert [r.record.value async for r in log.read("t")] == [b"unread"]
    assert [r.record.value async for r in log.read("kept")] == [b"b"]


@dataclass(frozen=True)
class Unsteady(Lease):
    """Its connection is lost by whatever interrupts a statement."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep(self, cursor: Cursor) -> None:
        with suppress(asyncio.CancelledError):
            while not self.asked.is_set():
                self.asked.set()
                await asyncio.Event().wait()
        raise LogUnavailable("the connection was lost")


async def test_a_reader_that_is_stopped_stops_although_its_connection_is_lost_by_that(pool: Pool, database: str, log: PgLog) -> None:
    await log.create_topics({"t": 1}, retention_ms={})
    await log.append([record("a")])
    sinks = list[Collector]()

    def open_sink(partition: Partition) -> Collector:
        sinks.append(Collector(partition, acknowledge=True, room=10))
        return sinks[-1]

    lease = Unsteady(pool, "g", "t", uuid4(), 10.0)
    task = asyncio.create_task(PgSubscription(lease, Doorbell(database, str(lease.owner)), open_sink, 0.2).run())
    async with asyncio.timeout(30):
        await lease.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(sinks) == 1, "it did not begin again"


async def test_a_log_that_another_server_wrote_is_read_on_where_its_readers_were_and_before_what_comes(pool: Pool, database: str, log: PgLog) -> None:
    """As pg_dump and a restore leave it."""
    await log.create_topics({"t": 1}, retention_ms={})
    await log.append([record("a"), record("b")])
    async with reading(pool, database) as found:
        await found.until(2)
    await log.append([record("c"), record("d")])
    for table in ("events", "log_readers"):
        await pool.execute(f"update {table} set xact = (xact::text::bigint + 1000000)::text::xid8")
    await log.append([record("e")])
    assert await take_over_log(pool) is True
    await log.append([record("f")])
    async with reading(pool, database) as found:
        assert await found.until(4) == [b"c", b"d", b"e", b"f"]
    for table in ("events", "log_readers"):
        await pool.execute(f"update {table} set xact = (xact::text::bigint + 1000000)::text::xid8")
    [own] = await log.append([record("g")])
    assert await take_over_log(pool) is True
    assert (await log.acknowledged("g", "t"))[0] <= own.offset, "what was appended here before is not taken for read"
    assert await take_over_log(pool) is False


async def test_a_log_of_this_server_is_left_as_it_is(pool: Pool, log: PgLog) -> None:
    await log.create_topics({"t": 1}, retention_ms={})
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.fetchval(INSERT, b"slow")
        await log.append([record("fast")])
        assert await take_over_log(pool) is False
        await transaction.commit()
    assert [r.record.value async for r in log.read("t")] == [b"slow", b"fast"]


async def test_what_expires_is_not_locked_while_an_erasure_takes_other_records_out(pool: Pool, database: str, log: PgLog) -> None:
    await log.create_topics({"t": 1}, retention_ms={"t": 0})
    await log.append([record("a")])
    async with reading(pool, database) as found:
        await found.until(1)
    async with pool.acquire() as erasing:
        async with erasing.transaction():
            await erasing.execute("update gone_batches set batch = batch + 1")
            expiring = asyncio.create_task(log.expire())
            while not await erasing.fetchval("select exists (select from pg_locks where not granted and locktype in ('tuple', 'transactionid'))"):
                await asyncio.sleep(0.005)
            assert await erasing.fetch("select position from events where topic = 't' for update nowait"), "each would wait for the other"
        await expiring
    assert [r async for r in log.read("t")] == []
