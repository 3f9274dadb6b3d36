"""Tables come from a backup, and their readers on Kafka are further: what the tables have not seen comes into them, or nothing starts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.background.recovery import recover
from anabranch.composition.overrides import Overrides
from anabranch.composition.readers import readers
from anabranch.composition.storage import Storage
from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings import Settings
from processors import STAGES
from schemas.errors import ConfigurationError, FatalError
from sql.generations import PgGenerations
from sql.pool import Pool
from tests.both_logs import on_both_logs, on_kafka, truncate
from tests.integration.test_recovery import copy_keys, copy_log
from tests.journey.conftest import PATIENCE_S, World, running
from tests.journey.test_erasure_after_a_disaster import copied_to

STAYS, CHANGES, GOES, COMES = "A heron stands at the weir.", "An otter swims under the bridge.", "A kingfisher waits on a post.", "A swan sleeps on the island."


async def quiet(storage: Storage) -> None:
    """Every group has finished what is in the log, and so the tables know."""
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            for reader in readers(await PgGenerations(storage.pool).undropped(), STAGES):
                while await storage.waiting(reader.group, reader.topic) or await behind(storage):
                    await asyncio.sleep(0.05)


async def behind(storage: Storage) -> list[tuple[str, int]]:
    """Where the tables know of less than the group has acknowledged."""
    known = await storage.reached.all()
    found = []
    for reader in readers(await PgGenerations(storage.pool).undropped(), STAGES):
        for partition, end in (await storage.log.acknowledged(reader.group, reader.topic)).items():
            if known.get((reader.group, reader.topic), {}).get(partition, 0) < end:
                found.append((reader.group, partition))
    return found


async def documents(pool: Pool) -> set[str]:
    rows = await pool.fetch("select d.external_id from visible v join documents d on d.id = v.document_id")
    return {row["external_id"] for row in rows}


async def all_there(world: World, names: set[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await documents(world.worker.storage.pool) != names:
            await asyncio.sleep(0.05)


async def told(world: World, name: str, text: str) -> dict[str, Any]:
    return await world.searchable(text, external_id=name)


async def withdrawn(world: World, receipt: dict[str, Any]) -> None:
    await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    async with asyncio.timeout(PATIENCE_S):
        while any(result["document_id"] == receipt["document_id"] for result in await world.search(GOES)):
            await asyncio.sleep(0.05)


@on_kafka
async def test_what_came_after_the_backup_is_read_again(settings: Settings, database: str, other_database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
        await told(world, "changes", CHANGES)
        goes = await told(world, "goes", GOES)
        await quiet(world.worker.storage)
        assert await behind(world.worker.storage) == []
    await copied_to(database, other_database)
    async with running(settings, database, overrides) as world:
        await told(world, "comes", COMES)
        await told(world, "changes", f"{CHANGES} It is gone at once.")
        await world.ended(await world.ingest(STAYS, external_id="stays"))
        await withdrawn(world, goes)
        await quiet(world.worker.storage)
        assert await behind(world.worker.storage) == [], "also where what came was superseded or unchanged"
    async with running(settings, other_database, overrides) as world:
        await quiet(world.worker.storage)
        assert await documents(world.worker.storage.pool) == {"stays", "changes", "comes"}
        assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0
        await told(world, "more", "A grebe dives.")
        await quiet(world.worker.storage)
        assert await behind(world.worker.storage) == []


@on_kafka
async def test_where_a_generation_was_decided_on_since_nothing_starts(settings: Settings, database: str, other_database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
    await copied_to(database, other_database)
    async with running(settings, database, overrides) as world:
        storage = world.worker.storage
        name = await start_rebuild(storage, world.worker.builder.decisions, keep=False)
        async with asyncio.timeout(PATIENCE_S):
            while await storage.pool.fetchval("select name from live_generation") != name:
                await asyncio.sleep(0.05)
        await quiet(storage)
    with pytest.raises(ConfigurationError, match=r"generation\.created") as refused:
        async with running(settings, other_database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "anabranch rebuild" in refused.value.remedy


@on_kafka
async def test_empty_tables_of_a_log_that_was_read_are_not_begun_with(settings: Settings, database: str, other_database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
        await quiet(world.worker.storage)
    with pytest.raises(ConfigurationError, match="empty") as refused:
        async with running(settings, other_database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "anabranch rebuild" in refused.value.remedy


@on_kafka
async def test_tables_of_a_version_that_knew_no_places_are_taken_for_complete(settings: Settings, database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
        await quiet(world.worker.storage)
        await world.worker.storage.pool.execute("delete from groups_reached")
    async with running(settings, database, overrides) as world:
        assert await behind(world.worker.storage) == []
        await told(world, "comes", COMES)
        await quiet(world.worker.storage)
        assert await behind(world.worker.storage) == []


@on_kafka
async def test_a_worker_under_which_tables_are_restored_stops_and_the_next_one_makes_it_good(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """As when a standby takes over that was behind."""
    async with running(settings, database, overrides) as world:
        storage = world.worker.storage
        await told(world, "stays", STAYS)
        await quiet(storage)
        earlier = await storage.pool.fetch("select * from groups_reached")
        await told(world, "comes", COMES)
        await quiet(storage)
        await storage.pool.execute("delete from groups_reached")
        await storage.pool.copy_records_to_table("groups_reached", schema_name="anabranch", records=earlier)
        with pytest.raises(FatalError) as noticed:
            await world.worker.maintenance.once(expire=False)
        assert noticed.value.code == "TABLES_RESTORED"
        assert await behind(storage)
    async with running(settings, database, overrides) as world:
        await quiet(world.worker.storage)
        assert await documents(world.worker.storage.pool) == {"stays", "comes"}
        await told(world, "changes", CHANGES)
        await quiet(world.worker.storage)
        assert await behind(world.worker.storage) == []


@on_both_logs
async def test_changes_noted_on_the_server_that_a_dump_came_from_end_no_answers(settings: Settings, database: str, overrides: Overrides) -> None:
    foreign = "xact >= pg_snapshot_xmax(pg_current_snapshot())"
    async with running(settings, database, overrides) as world:
        await world.worker.storage.pool.execute("insert into index_changes values ('1000000000', 'default', 'g1')")
        assert await world.worker.storage.pool.fetchval(f"select count(*) from index_changes where {foreign}") == 1
    async with running(settings, database, overrides) as world:
        assert await world.worker.storage.pool.fetchval(f"select count(*) from index_changes where {foreign}") == 0


@on_both_logs
async def test_documents_whose_keys_are_newer_than_the_backup_of_the_keystore_come_in_once_more(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """The tables are made from the log, and the keystore from an old backup."""
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
    await copy_keys(database, other_database)
    async with running(settings, database, overrides) as world:
        await told(world, "comes", COMES)
        await told(world, "stays", f"{STAYS} It does not move.")
    if settings.log_kind == "postgres":
        await copy_log(database, other_database)
    assert await recover(settings, other_database) is not None
    for _ in range(2):
        async with running(settings, other_database, overrides) as world:
            await all_there(world, {"stays", "comes"})
            assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0
            assert {result["external_id"] for result in await world.search("swan")} >= {"comes"}


@on_kafka
async def test_keys_that_are_in_no_backup_stop_the_start_where_raw_does_not_hold_what_they_sealed(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with running(settings, database, overrides) as world:
        await told(world, "stays", STAYS)
        await quiet(world.worker.storage)
    await copied_to(database, other_database)
    async with running(settings, database, overrides) as world:
        await told(world, "comes", COMES)
        await quiet(world.worker.storage)
        await truncate(world.worker.storage, settings, "raw")
    with pytest.raises(ConfigurationError, match="lacks 1 keys") as refused:
        async with running(settings, other_database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "newest backup of schema `keystore`" in refused.value.remedy
    await copy_keys(database, other_database)
    async with running(settings, other_database, overrides) as world:
        await all_there(world, {"stays", "comes"})
        assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0
