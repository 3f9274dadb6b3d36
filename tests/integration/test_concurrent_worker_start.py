"""A starting worker does not mistake other workers' progress for lost table rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable
from schemas.generations import Generation, IndexConfig
from schemas.records import Record
from services.recovery.restore_check import CONTROL_GROUP, INGRESS_GROUP, check_tables_current
from services.storage import Storage
from streams.signatures import SIGNATURE_HEADER
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.shared_log import SharedLog, acknowledge_offset, do_nothing, open_storage

FIRST_GENERATION = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")


@pytest.fixture
def log() -> SharedLog:
    return SharedLog()


@pytest.fixture
async def storage(tmp_path: Path, database: str, log: SharedLog) -> AsyncIterator[Storage]:
    async with open_storage(log, tmp_path, database) as prepared:
        yield prepared


async def test_concurrent_first_generation_does_not_trigger_recovery(
    storage: Storage, log: SharedLog
) -> None:
    async def made() -> None:
        log.concurrent_work = do_nothing
        await apply_control_rows(storage.pool, created_row(FIRST_GENERATION))
        await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 1)

    log.concurrent_work = made
    await check_tables_current(storage, {})


async def test_decision_applied_concurrently_is_not_missed(
    storage: Storage, log: SharedLog
) -> None:
    await apply_control_rows(storage.pool, created_row(FIRST_GENERATION))
    await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 1)

    async def erased() -> None:
        log.concurrent_work = do_nothing
        signatures = storage.codec.signer
        assert signatures is not None
        for kind in (b"generation.created.v1", b"erasure.requested.v1"):
            headers = {"ce_type": kind}
            await log.append(
                [
                    Record(
                        "control",
                        b"r",
                        b"{}",
                        headers | {SIGNATURE_HEADER: signatures.sign("control", b"{}", headers)},
                    )
                ]
            )
        await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 2)

    log.concurrent_work = erased
    await check_tables_current(storage, {})
    await storage.pool.execute("update consumer_offsets set next_offset = 1")
    with pytest.raises(ConfigurationError, match=r"erasure\.requested") as refused:
        await check_tables_current(storage, {})
    assert refused.value.code == "TABLES_RESTORED"


async def test_offsets_are_imported_atomically(storage: Storage, log: SharedLog) -> None:
    await apply_control_rows(storage.pool, created_row(FIRST_GENERATION))
    log.offsets = {CONTROL_GROUP: {0: 1}, INGRESS_GROUP: {0: 7}}
    await storage.pool.execute(
        "create function fill_up() returns trigger language plpgsql as $$ begin if exists (select "
        "from anabranch.consumer_offsets) then "
        "raise exception using errcode = '53100'; end if; return new; end $$; "
        "create trigger fill_up before insert on consumer_offsets "
        "for each row execute function fill_up()"
    )
    with pytest.raises(DatabaseUnavailable):
        await check_tables_current(storage, {})
    assert await storage.offset_store.fetch_all() == {}, (
        "what is missing of half of them would look lost"
    )
    await storage.pool.execute("drop function fill_up cascade")
    await check_tables_current(storage, {})
    assert await storage.offset_store.fetch_all() == log.offsets
