"""Consumers pass records that a chain has applied, and wait for a chain that is being committed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.topics import Position, Record, StoredRecord
from streams import chained_records
from streams.chained_records import CHAIN_HEADER, ChainedRecords
from tests.support.simulated_pipeline import GENERATION


class ListedChains:
    """The chains of other workers, by the received event; absent while they may be committed."""

    generation = GENERATION

    def __init__(self, **ended: bool) -> None:
        self.ended = {UUID(int=int(name[1:])): applied for name, applied in ended.items()}
        self.n_calls = 0

    async def fetch_ended_chains(self, received_ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        self.n_calls += 1
        return {each: self.ended[each] for each in received_ids if each in self.ended}


def open_records(chains: ListedChains) -> ChainedRecords:
    ledger: Any = chains
    return ChainedRecords(ledger)


def store(offset: int, headers: Mapping[str, bytes]) -> StoredRecord:
    record = Record("chunked", b"k", b"{}", headers)
    return StoredRecord(record, Position("chunked", 3, offset), datetime(2026, 1, 1, tzinfo=UTC))


def store_chained(number: int, records: ChainedRecords) -> StoredRecord:
    marked = records.mark(UUID(int=number), Record("chunked", b"k", b"{}"))
    return store(number, marked.headers)


async def find_offsets(records: ChainedRecords, *stored: StoredRecord) -> list[int]:
    return sorted(position.offset for position in await records.find_applied(stored))


async def test_records_without_a_chain_are_not_looked_up() -> None:
    chains = ListedChains()
    records = open_records(chains)
    foreign = [b"g2/00000000-0000-0000-0000-000000000001", b"g1/one", b"g1", b"\xff", b""]
    stored = [store(n, {CHAIN_HEADER: header}) for n, header in enumerate(foreign)]
    assert await find_offsets(records, store(9, {}), *stored) == []
    assert chains.n_calls == 0


async def test_committed_chain_is_looked_up_once() -> None:
    chains = ListedChains(e1=True, e2=False)
    records = open_records(chains)
    stored = [store_chained(1, records), store_chained(2, records)]
    assert await find_offsets(records, *stored) == [1]
    assert await find_offsets(records, *stored) == [1]
    assert chains.n_calls == 1


@pytest.mark.parametrize("is_committed", [True, False])
async def test_consumer_waits_for_chain_of_its_process(is_committed: bool) -> None:
    chains = ListedChains()
    records = open_records(chains)
    with records.run([UUID(int=1)]) as results:
        found = asyncio.ensure_future(find_offsets(records, store_chained(1, records)))
        await asyncio.sleep(0.01)
        assert not found.done()
        results[UUID(int=1)] = is_committed
    assert await found == ([1] if is_committed else [])
    assert chains.n_calls == 0


async def test_failed_chain_leaves_its_records_to_their_consumers() -> None:
    records = open_records(ListedChains())
    with pytest.raises(ValueError, match="lost"), records.run([UUID(int=1)]):
        raise ValueError("lost")
    assert await find_offsets(records, store_chained(1, records)) == []


async def test_consumer_waits_for_chain_of_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_records, "POLL_S", 0.001)
    chains = ListedChains()
    records = open_records(chains)
    found = asyncio.ensure_future(find_offsets(records, store_chained(1, records)))
    while chains.n_calls < 3:
        await asyncio.sleep(0.001)
    chains.ended[UUID(int=1)] = True
    assert await found == [1]


async def test_consumer_does_not_wait_for_a_dead_worker_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chained_records, "WAIT_S", 0.02)
    monkeypatch.setattr(chained_records, "POLL_S", 0.001)
    records = open_records(ListedChains(e2=True))
    assert await find_offsets(records, store_chained(1, records), store_chained(2, records)) == [2]
