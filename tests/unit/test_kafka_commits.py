"""What a reader takes for committed and what it asks for, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import Any

import pytest
from faust.types import TP

from schemas.errors import DatabaseUnavailable, FatalError
from schemas.ports.reached import Reached, Unnoted
from streams.kafka.app import StageApp
from streams.kafka.assignment import Assignment

PLACE = TP("topic", 0)
OTHER = TP("topic", 1)


class Thread:
    """As Faust's that talks to the broker, which refuses or takes what is committed."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.fetching: asyncio.Future[Set[TP]] = asyncio.get_running_loop().create_future()
        self.arrives = asyncio.Event()

    async def commit(self, offsets: Mapping[Any, int]) -> bool:
        return self.takes

    async def getmany(self, active: Set[TP], timeout: float) -> Mapping[TP, list[str]]:
        """As aiokafka: what comes of these partitions, which it looks up when something comes; of all, if there are none."""
        self.fetching.set_result(active)
        await self.arrives.wait()
        return {tp: ["record"] for tp in (PLACE, OTHER) if not active or tp in active}

    def assignment(self) -> set[TP]:
        return {PLACE}


class Tables(Unnoted):
    """They take what they are told, or raise."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.noted: list[Mapping[int, int]] = []

    async def note(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        if (error := self.answers.pop(0) if self.answers else None) is not None:
            raise error
        self.noted.append(offsets)


def consumer(takes: bool, tables: Reached | None = None) -> Any:
    arguments = {"bootstrap_servers": "127.0.0.1:1", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000}
    app = StageApp("group", "topic", Assignment("topic", lambda partition: pytest.fail("nothing is assigned here"), "group", tables), arguments)
    made: Any = app.consumer
    made._thread.thread_loop.close()  # it runs nowhere
    made._thread = Thread(takes)
    return made


@pytest.mark.parametrize(("takes", "kept"), [(True, 5), (False, None)])
async def test_what_the_group_refused_is_not_taken_for_committed(takes: bool, kept: int | None) -> None:
    reader = consumer(takes)
    assert await reader._commit_offsets({PLACE: 5}) is takes
    assert reader._committed_offset[PLACE] == kept


async def test_what_the_tables_could_not_be_told_is_not_committed_and_told_again() -> None:
    tables = Tables(DatabaseUnavailable("away"), None)
    reader = consumer(takes=True, tables=tables)
    reader._acked[PLACE] += [3, 4]
    assert await reader.force_commit() is False
    assert reader._committed_offset[PLACE] is None and tables.noted == []
    assert await reader.force_commit() is True
    assert reader._committed_offset[PLACE] == 5 and tables.noted == [{0: 5}]


async def test_nothing_is_committed_for_tables_that_were_restored_and_reading_ends() -> None:
    reader = consumer(takes=True, tables=Tables(FatalError("older", code="TABLES_RESTORED")))
    assert await reader._commit_offsets({PLACE: 5}) is False
    with pytest.raises(FatalError, match="older"):
        reader.app.assignment.failed.result()


async def test_a_revocation_does_not_change_what_a_waiting_fetch_has_asked_for() -> None:
    reader = consumer(takes=True)
    reader._set_active_tps({PLACE})
    waiting = asyncio.ensure_future(reader._wait_next_records(1.0))
    await reader._thread.fetching
    await reader.on_partitions_revoked({PLACE})
    reader._thread.arrives.set()
    records, active = await waiting
    assert set(records) == set(active) == {PLACE}
