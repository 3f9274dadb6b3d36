"""A worker that starts while others are at work takes what they do meanwhile for nothing that the tables have lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.composition.restored import CONTROL, DOOR, check_current
from anabranch.composition.storage import Storage
from schemas.errors import ConfigurationError, DatabaseUnavailable
from schemas.generations import Generation, IndexConfig
from schemas.records import Record
from schemas.rows import GenerationRow
from streams.signatures import SIGNATURE
from tests.generations import decide
from tests.shared_log import SharedLog, acknowledge, nothing, storage_over

FIRST = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")


@pytest.fixture
def log() -> SharedLog:
    return SharedLog()


@pytest.fixture
async def storage(tmp_path: Path, database: str, log: SharedLog) -> AsyncIterator[Storage]:
    async with storage_over(log, tmp_path, database) as prepared:
        yield prepared


async def test_a_first_generation_that_another_worker_makes_at_this_moment_is_no_sign_of_empty_tables(storage: Storage, log: SharedLog) -> None:
    async def made() -> None:
        log.work = nothing
        await decide(storage.pool, GenerationRow(FIRST))
        await acknowledge(storage.pool, log, CONTROL, 1)

    log.work = made
    await check_current(storage, {})


async def test_a_decision_that_another_worker_carries_out_at_this_moment_is_not_missed(storage: Storage, log: SharedLog) -> None:
    await decide(storage.pool, GenerationRow(FIRST))
    await acknowledge(storage.pool, log, CONTROL, 1)

    async def erased() -> None:
        log.work = nothing
        signatures = storage.codec.signatures
        assert signatures is not None
        for kind in (b"generation.created.v1", b"erasure.requested.v1"):
            headers = {"ce_type": kind}
            await log.append([Record("control", b"r", b"{}", headers | {SIGNATURE: signatures.sign("control", b"{}", headers)})])
        await acknowledge(storage.pool, log, CONTROL, 2)

    log.work = erased
    await check_current(storage, {})
    await storage.pool.execute("update groups_reached set next_offset = 1")
    with pytest.raises(ConfigurationError, match=r"erasure\.requested") as refused:
        await check_current(storage, {})
    assert refused.value.code == "TABLES_RESTORED"


async def test_places_are_taken_over_together_or_not_at_all(storage: Storage, log: SharedLog) -> None:
    await decide(storage.pool, GenerationRow(FIRST))
    log.places = {CONTROL: {0: 1}, DOOR: {0: 7}}
    await storage.pool.execute(
        "create function fill_up() returns trigger language plpgsql as $$ begin if exists (select from anabranch.groups_reached) then "
        "raise exception using errcode = '53100'; end if; return new; end $$; "
        "create trigger fill_up before insert on groups_reached for each row execute function fill_up()"
    )
    with pytest.raises(DatabaseUnavailable):
        await check_current(storage, {})
    assert await storage.reached.all() == {}, "what is missing of half of them would look lost"
    await storage.pool.execute("drop function fill_up cascade")
    await check_current(storage, {})
    assert await storage.reached.all() == log.places
