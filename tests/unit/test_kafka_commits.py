"""Committed and fetched offsets of a consumer, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import Any

import pytest
from faust.types import TP

from schemas.errors import DatabaseUnavailable, FatalError
from schemas.ports.consumers import NoOffsetStore, OffsetStore
from streams.kafka.assignment import PartitionAssignment
from streams.kafka.faust_app import FaustApp

PARTITION = TP("topic", 0)
OTHER_PARTITION = TP("topic", 1)


class FakeConsumerThread:
    """Faust's broker thread, which accepts or refuses commits."""

    def __init__(self, accepts: bool) -> None:
        self.accepts = accepts
        self.fetching: asyncio.Future[Set[TP]] = asyncio.get_running_loop().create_future()
        self.arrives = asyncio.Event()

    async def commit(self, offsets: Mapping[Any, int]) -> bool:
        return self.accepts

    async def getmany(self, active: Set[TP], timeout: float) -> Mapping[TP, list[str]]:
        """Fetch like aiokafka: `active` is read when records arrive; empty means all partitions."""
        self.fetching.set_result(active)
        await self.arrives.wait()
        return {tp: ["record"] for tp in (PARTITION, OTHER_PARTITION) if not active or tp in active}

    def assignment(self) -> set[TP]:
        return {PARTITION}


class FakeOffsetStore(NoOffsetStore):
    """Stores offsets, or raises the given errors in turn."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.stored_offsets: list[Mapping[int, int]] = []

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        if (error := self.answers.pop(0) if self.answers else None) is not None:
            raise error
        self.stored_offsets.append(offsets)


def make_consumer(accepts: bool, tables: OffsetStore | None = None) -> Any:
    arguments = {
        "bootstrap_servers": "127.0.0.1:1",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
    }
    app = FaustApp(
        "group",
        "topic",
        PartitionAssignment(
            "topic", lambda partition: pytest.fail("nothing is assigned here"), "group", tables
        ),
        arguments,
    )
    consumer: Any = app.consumer
    consumer._thread.thread_loop.close()  # The loop is never run.
    consumer._thread = FakeConsumerThread(accepts)
    return consumer


@pytest.mark.parametrize(("accepts", "committed_offset"), [(True, 5), (False, None)])
async def test_offset_rejected_by_group_is_not_committed(
    accepts: bool, committed_offset: int | None
) -> None:
    reader = make_consumer(accepts)
    assert await reader._commit_offsets({PARTITION: 5}) is accepts
    assert reader._committed_offset[PARTITION] == committed_offset


async def test_offset_not_stored_in_tables_is_retried() -> None:
    tables = FakeOffsetStore(DatabaseUnavailable("away"), None)
    reader = make_consumer(accepts=True, tables=tables)
    reader._acked[PARTITION] += [3, 4]
    assert await reader.force_commit() is False
    assert reader._committed_offset[PARTITION] is None and tables.stored_offsets == []
    assert await reader.force_commit() is True
    assert reader._committed_offset[PARTITION] == 5 and tables.stored_offsets == [{0: 5}]


async def test_restored_tables_stop_commits_and_reading() -> None:
    reader = make_consumer(
        accepts=True, tables=FakeOffsetStore(FatalError("older", code="TABLES_RESTORED"))
    )
    assert await reader._commit_offsets({PARTITION: 5}) is False
    with pytest.raises(FatalError, match="older"):
        reader.app.assignment.failure.result()


async def test_revocation_does_not_change_a_fetch_in_flight() -> None:
    reader = make_consumer(accepts=True)
    reader._set_active_tps({PARTITION})
    waiting = asyncio.ensure_future(reader._wait_next_records(1.0))
    await reader._thread.fetching
    await reader.on_partitions_revoked({PARTITION})
    reader._thread.arrives.set()
    records, active = await waiting
    assert set(records) == set(active) == {PARTITION}
