"""Tables restored from a backup catch up with their Kafka readers, or prevent the start."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES
from schemas.errors import ConfigurationError, FatalError
from services.generations.stage_assignments import StageAssignment, assign_stages
from services.storage import Storage
from sql.database import Pool
from sql.index.generations import PgGenerations
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_database, copy_keys, copy_log
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, on_kafka

UNCHANGED_TEXT, REVISED_TEXT, WITHDRAWN_TEXT, LATER_TEXT = (
    "A heron stands at the weir.",
    "An otter swims under the bridge.",
    "A kingfisher waits on a post.",
    "A swan sleeps on the island.",
)


async def wait_until_idle(storage: Storage) -> None:
    """Wait until every group has read to the end of the log and the tables have its offsets."""
    for _ in range(2):
        for reader in assign_stages(await PgGenerations(storage.pool).fetch_undropped(), STAGES):

            async def is_idle(reader: StageAssignment = reader) -> bool:
                return not (
                    await storage.log.count_pending(reader.group, reader.topic)
                    or await list_lagging_partitions(storage)
                )

            await eventually(is_idle, what=f"an idle {reader.group}")


async def list_lagging_partitions(storage: Storage) -> list[tuple[str, int]]:
    """List the partitions whose stored offset is below the group's committed one."""
    stored_offsets = await storage.offset_store.fetch_all()
    found = []
    for reader in assign_stages(await PgGenerations(storage.pool).fetch_undropped(), STAGES):
        for partition, end in (
            await storage.log.fetch_committed_offsets(reader.group, reader.topic)
        ).items():
            if stored_offsets.get((reader.group, reader.topic), {}).get(partition, 0) < end:
                found.append((reader.group, partition))
    return found


async def assert_caught_up(world: ApiWorld) -> None:
    await wait_until_idle(world.worker.storage)
    assert await list_lagging_partitions(world.worker.storage) == []


async def count_rows(world: ApiWorld, of: str) -> int:
    return int(await world.worker.storage.pool.fetchval(f"select count(*) from {of}"))


async def expect_refused_start(
    settings: Settings, database: str, overrides: Overrides, match: str
) -> ConfigurationError:
    with pytest.raises(ConfigurationError, match=match) as refused:
        async with run_system(settings, database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "anabranch rebuild" in refused.value.remedy
    return refused.value


async def fetch_visible_ids(pool: Pool) -> set[str]:
    rows = await pool.fetch(
        "select d.external_id from visible v join documents d on d.id = v.document_id"
    )
    return {row["external_id"] for row in rows}


async def wait_for_visible_ids(world: ApiWorld, names: set[str]) -> None:
    await eventually(
        lambda: fetch_visible_ids(world.worker.storage.pool), lambda visible: visible == names
    )


async def ingest_document(world: ApiWorld, name: str, text: str) -> dict[str, Any]:
    return await world.ingest_until_searchable(text, external_id=name)


async def withdraw_document(world: ApiWorld, receipt: dict[str, Any]) -> None:
    await world.http.delete(f"/v1/documents/{receipt['document_id']}")

    async def find_documents() -> set[str]:
        return {result["document_id"] for result in await world.search(WITHDRAWN_TEXT)}

    await eventually(find_documents, lambda found: receipt["document_id"] not in found)


@on_kafka
async def test_records_after_backup_are_reprocessed(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await ingest_document(world, "stays", UNCHANGED_TEXT)
        await ingest_document(world, "changes", REVISED_TEXT)
        goes = await ingest_document(world, "goes", WITHDRAWN_TEXT)
        await assert_caught_up(world)
    await copy_database(database, other_database)
    async with run_system(settings, database, overrides) as world:
        await ingest_document(world, "comes", LATER_TEXT)
        await ingest_document(world, "changes", f"{REVISED_TEXT} It is gone at once.")
        await world.wait_until_final(await world.ingest(UNCHANGED_TEXT, external_id="stays"))
        await withdraw_document(world, goes)
        # Also where what came was superseded or unchanged.
        await assert_caught_up(world)
    await copy_keys(database, other_database)
    async with run_system(settings, other_database, overrides) as world:
        await wait_until_idle(world.worker.storage)
        assert await fetch_visible_ids(world.worker.storage.pool) == {"stays", "changes", "comes"}
        assert await count_rows(world, "dead_letters") == 0
        await ingest_document(world, "more", "A grebe dives.")
        await assert_caught_up(world)


@on_kafka
async def test_empty_database_with_consumed_log_prevents_start(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await ingest_document(world, "stays", UNCHANGED_TEXT)
        await wait_until_idle(world.worker.storage)
    await expect_refused_start(settings, other_database, overrides, "empty")


@on_kafka
async def test_worker_stops_on_restored_offsets_and_next_catches_up(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """Simulate the takeover by a standby that was behind."""
    async with run_system(settings, database, overrides) as world:
        storage = world.worker.storage
        await ingest_document(world, "stays", UNCHANGED_TEXT)
        await wait_until_idle(storage)
        earlier = await storage.pool.fetch("select * from consumer_offsets")
        await ingest_document(world, "comes", LATER_TEXT)
        await wait_until_idle(storage)
        await storage.pool.execute("delete from consumer_offsets")
        await storage.pool.copy_records_to_table(
            "consumer_offsets", schema_name="anabranch", records=earlier
        )
        with pytest.raises(FatalError) as noticed:
            await world.worker.maintenance.run_once(expire=False)
        assert noticed.value.code == "TABLES_RESTORED"
        assert await list_lagging_partitions(storage)
    async with run_system(settings, database, overrides) as world:
        await wait_until_idle(world.worker.storage)
        assert await fetch_visible_ids(world.worker.storage.pool) == {"stays", "comes"}
        await ingest_document(world, "changes", REVISED_TEXT)
        await assert_caught_up(world)


@long_on_kafka
async def test_index_changes_of_foreign_server_are_deleted(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    foreign = "index_changes where xact >= pg_snapshot_xmax(pg_current_snapshot())"
    async with run_system(settings, database, overrides) as world:
        await world.worker.storage.pool.execute(
            "insert into index_changes values ('1000000000', 'default', 'g1')"
        )
        assert await count_rows(world, foreign) == 1
    async with run_system(settings, database, overrides) as world:
        assert await count_rows(world, foreign) == 0


@long_on_kafka
async def test_documents_missing_from_keystore_backup_are_reingested(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """Rebuild the tables from the log with an old keystore backup."""
    async with run_system(settings, database, overrides) as world:
        await ingest_document(world, "stays", UNCHANGED_TEXT)
    await copy_keys(database, other_database)
    async with run_system(settings, database, overrides) as world:
        comes = await ingest_document(world, "comes", LATER_TEXT)
        await ingest_document(world, "stays", f"{UNCHANGED_TEXT} It does not move.")
    if settings.log_kind == "postgres":
        await copy_log(database, other_database)
    report = await recover_database(settings, other_database)
    assert report is not None and report.documents_without_keys == [comes["document_id"]]
    for _ in range(2):
        async with run_system(settings, other_database, overrides) as world:
            await wait_for_visible_ids(world, {"stays", "comes"})
            assert await count_rows(world, "dead_letters") == 0
            assert {result["external_id"] for result in await world.search("swan")} >= {"comes"}
