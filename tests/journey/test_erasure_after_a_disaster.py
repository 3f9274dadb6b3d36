"""Erased, and then the database lost: what is made again from the log, the blobs and an old backup of the keys does not bring it back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from anabranch.background.passing import Passing
from anabranch.background.recovery import recover
from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from schemas.errors import ConfigurationError
from sql.checksum import checksum
from sql.pool import Pool, close_pool, open_pool
from tests.both_logs import on_both_logs, on_kafka
from tests.canaries import in_files, in_tables
from tests.integration.test_recovery import copy_keys, copy_log
from tests.journey.conftest import PATIENCE_S, World, running
from tests.journey.test_erasure import CANARY, HEAD, OTHER, TEXT, erase

WORDS = (CANARY, HEAD)
READABLE = ["log.plain_tenants=default"]


async def told(world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is erased, the first of all that was accepted, and what stays."""
    gone = await world.searchable(TEXT, f"{HEAD}.md", external_id=f"{HEAD}-1", title=f"A {HEAD} title")
    await world.searchable(f"{TEXT} Once more.", f"{HEAD}.md", external_id=f"{HEAD}-1", title=f"A {HEAD} title")
    stays = await world.searchable(OTHER, external_id="lights")
    answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
    await world.http.post("/v1/feedback", json={"run_id": answer["run_id"], "useful": True, "note": HEAD})
    return gone, stays


async def keys_of(pool: Pool) -> list[Any]:
    return list(await pool.fetch("select * from keystore.keys"))


async def restore(pool: Pool, backup: Sequence[Any], other: Pool) -> None:
    await other.execute("delete from keystore.keys")
    await other.copy_records_to_table("keys", schema_name="keystore", records=backup)
    for table in ("master", "readable"):
        await other.copy_records_to_table(table, schema_name="keystore", records=await pool.fetch(f"select * from keystore.{table}"))


async def disaster(
    settings: Settings, database: str, other_database: str, overrides: Overrides, *, erased_first: bool
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Returns what stays, what was recovered, and the sums from before. The backup is from before the erasure, so that all its keys are there."""
    pool, other = await open_pool(database, size=2, name="test"), await open_pool(other_database, size=2, name="test")
    try:
        async with running(settings, database, overrides) as world:
            gone, stays = await told(world)
            backup = await keys_of(pool)
            assert any(str(key["subject"]) == gone["document_id"] for key in backup) == (not settings.log.plain_tenants)
            if erased_first:
                await world.http.delete(f"/v1/documents/{gone['document_id']}")
            await erase(world, "document", gone["document_id"])
        before = await checksum(pool, everything=True)
        if settings.log_kind == "postgres":
            await copy_log(database, other_database)
        await restore(pool, backup, other)
        found = await recover(settings, other_database)
        assert found is not None
        return stays, found, before
    finally:
        await close_pool(pool)
        await close_pool(other)


@on_both_logs
async def test_an_old_backup_of_the_keys_and_the_log_do_not_bring_back_what_was_erased(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    stays, found, before = await disaster(settings, database, other_database, overrides, erased_first=False)
    assert found["engine_calls"] == 0 and found["rows"] > 0
    pool = await open_pool(other_database, size=2, name="test")
    try:
        assert await in_tables(pool, WORDS) <= {"raw"}, "of the log that lies in the same database, what producers sent"
        assert in_files(settings.data_dir, WORDS) == set()
        assert await pool.fetchval("select count(*) from keystore.keys where wrapped is null and destroyed_at is not null") >= 2
        assert await checksum(pool, everything=True) == before
        async with running(settings, other_database, overrides) as world:
            assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
            assert await in_tables(pool, WORDS) <= {"raw"}
            assert await pool.fetchval("select count(*) from dead_letters") == 0
            again = await world.searchable(TEXT, external_id=f"{HEAD}-1")
            assert again["document_id"] in {result["document_id"] for result in await world.search(CANARY)}, "sent again, it begins another life"
    finally:
        await close_pool(pool)


@on_both_logs
@pytest.mark.parametrize("withdrawn_first", [False, True], ids=["while it answers", "when it was withdrawn"])
async def test_of_a_tenant_whose_events_are_readable_it_does_not_come_back_into_any_table_either(
    tmp_path: Any, log_sets: list[str], database: str, other_database: str, overrides: Overrides, withdrawn_first: bool
) -> None:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *READABLE, *log_sets])
    stays, _, _ = await disaster(settings, database, other_database, overrides, erased_first=withdrawn_first)
    pool = await open_pool(other_database, size=2, name="test")
    try:
        topics = {"raw", "accepted", "ocr_done", "chunked", "entities", "embedded", "queries", "feedback"}
        assert await in_tables(pool, WORDS) <= topics
        async with running(settings, other_database, overrides) as world:
            assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
    finally:
        await close_pool(pool)


@pytest.mark.parametrize("begun", [False, True], ids=["requested", "keys destroyed"])
@on_both_logs
async def test_an_erasure_goes_on_when_the_database_is_lost_in_the_middle_of_it(
    settings: Settings, database: str, other_database: str, overrides: Overrides, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what cannot be read any more no row comes back, and its bytes are found all the same."""

    async def never(passing: Passing) -> None:
        await asyncio.Event().wait()

    async with running(settings, database, overrides) as world:
        await told(world)
        await world.searchable(f"{TEXT} In a collection.", external_id=f"{HEAD}-2", collection="birds")
        monkeypatch.setattr(Passing, "all" if begun else "arrived", never)
        receipt = (await world.http.post("/v1/erasures", json={"scope": "collection", "name": "birds"})).json()["receipt_id"]
        reached = "select count(*) from keystore.keys where destroyed_at is not null" if begun else "select count(*) from erasures"
        async with asyncio.timeout(PATIENCE_S):
            while not await world.worker.storage.pool.fetchval(reached):
                await asyncio.sleep(0.02)
    monkeypatch.undo()
    if settings.log_kind == "postgres":
        await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover(settings, other_database) is not None
    async with running(settings, other_database, overrides) as world:
        async with asyncio.timeout(PATIENCE_S):
            while (found := (await world.http.get(f"/v1/erasures/{receipt}")).json())["state"] != "done":
                await asyncio.sleep(0.05)
        assert found["documents"] == 1 and found["removed"]["blobs"] >= 1
        assert in_files(settings.data_dir, ["In a collection"]) == set()
        assert await in_tables(world.worker.storage.pool, ["In a collection"]) <= {"raw"}


@on_kafka
async def test_tables_that_were_restored_from_before_an_erasure_are_not_worked_with(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """Where the log is not among them its readers are further than they are: they would never be told."""
    async with running(settings, database, overrides) as world:
        gone = await world.searchable(TEXT, external_id=HEAD)
    await copied_to(database, other_database)
    async with running(settings, database, overrides) as world:
        await erase(world, "document", gone["document_id"])
    async with running(settings, database, overrides):
        """Started again it goes on."""
    with pytest.raises(ConfigurationError) as refused:
        async with running(settings, other_database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "anabranch rebuild" in refused.value.remedy


async def copied_to(database: str, other_database: str) -> None:
    """As a backup of everything in it would be restored."""
    (source, _), (target, server) = (part(one) for one in (database, other_database))
    connection = await asyncpg.connect(server)
    await connection.execute(f'drop database "{target}"')
    await connection.execute(f'create database "{target}" template "{source}"')
    await connection.close()


def part(dsn: str) -> tuple[str, str]:
    """Name of a database, and the address of its server's own."""
    found = urlsplit(dsn)
    return found.path[1:], urlunsplit(found._replace(path="/postgres"))


async def test_tables_of_a_log_whose_documents_were_all_erased_are_filled(settings: Settings, database: str, other_database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        gone = await world.searchable(TEXT, external_id=HEAD)
        await erase(world, "document", gone["document_id"])
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover(settings, other_database) is not None
    async with running(settings, other_database, overrides) as world:
        stays = await world.searchable(OTHER, external_id="lights")
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]


@pytest.mark.parametrize("readable", [[], READABLE], ids=["sealed", "readable"])
async def test_a_rebuild_beside_the_live_generation_leaves_out_what_was_erased(tmp_path: Any, database: str, overrides: Overrides, readable: list[str]) -> None:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *readable])
    async with running(settings, database, overrides) as world:
        gone, stays = await told(world)
        await erase(world, "document", gone["document_id"])
        pool = world.worker.storage.pool
        before = await checksum(pool, everything=True)
        name = await start_rebuild(world.worker.storage, world.worker.builder.decisions, keep=True)
        async with asyncio.timeout(PATIENCE_S):
            while await pool.fetchval("select name from live_generation") != name:
                await asyncio.sleep(0.05)
        assert await checksum(pool, everything=True) == before
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
        clear = {"raw", "outcomes"} if not readable else {"raw", "outcomes", "accepted", "ocr_done", "chunked", "entities", "embedded", "queries", "feedback"}
        assert await in_tables(pool, WORDS) <= clear
