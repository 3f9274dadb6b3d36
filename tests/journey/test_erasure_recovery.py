"""Recovery from the log, the blobs and an old key backup restores no erased data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.composition.storage import recover_database
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import TOPICS
from schemas.errors import ConfigurationError
from services.erasure.drain import DrainBarrier
from services.generations.reindex import start_rebuild
from sql.database import Pool, close_pool, open_pool, use_pool
from sql.operations.integrity import compute_checksum
from tests.support.api_world import ApiWorld, run_system
from tests.support.canaries import find_in_files, find_in_tables
from tests.support.database_copies import copy_database, copy_keys, copy_log
from tests.support.erasure import (
    CANARY,
    CANARY_TEXT,
    METADATA_CANARY,
    OTHER_TEXT,
    erase,
    ingest_canary,
    wait_until_erased,
)
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres, on_kafka

CANARIES = (CANARY, METADATA_CANARY)
UNENCRYPTED_SETTINGS = ["log.plain_tenants=default"]
READABLE_TOPICS = {"raw", *(str(topic) for topic in TOPICS if topic.is_sealed)}
"""Topics that may hold texts of an unencrypted tenant."""


async def ingest_workload(world: ApiWorld) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the erased document, which was accepted first, and the document that stays."""
    erased = await ingest_canary(world)
    await ingest_canary(world, f"{CANARY_TEXT} Once more.")
    stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
    await world.http.post(
        "/v1/feedback", json={"run_id": answer["run_id"], "useful": True, "note": METADATA_CANARY}
    )
    return erased, stays


async def fetch_keys(pool: Pool) -> list[Any]:
    return list(await pool.fetch("select * from keystore.keys"))


async def restore_keystore(pool: Pool, backup: Sequence[Any], other: Pool) -> None:
    await other.execute("delete from keystore.keys")
    await other.copy_records_to_table("keys", schema_name="keystore", records=backup)
    for table in ("master", "unencrypted_tenants"):
        await other.copy_records_to_table(
            table,
            schema_name="keystore",
            records=await pool.fetch(f"select * from keystore.{table}"),
        )


async def erase_then_recover(
    settings: Settings,
    database: str,
    other_database: str,
    overrides: Overrides,
    *,
    erased_first: bool,
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Returns what stays, what was recovered, and the sums from before. The backup is from before
    the erasure, so that all its keys are there.
    """
    pool, other = (
        await open_pool(database, size=2, name="test"),
        await open_pool(other_database, size=2, name="test"),
    )
    try:
        async with run_system(settings, database, overrides) as world:
            gone, stays = await ingest_workload(world)
            backup = await fetch_keys(pool)
            assert any(str(key["subject"]) == gone["document_id"] for key in backup) == (
                not settings.log.plain_tenants
            )
            if erased_first:
                await world.http.delete(f"/v1/documents/{gone['document_id']}")
            await erase(world, "document", gone["document_id"])
        before = await compute_checksum(pool, include_history=True)
        if settings.log_kind == "postgres":
            await copy_log(database, other_database)
        await restore_keystore(pool, backup, other)
        found = await recover_database(settings, other_database)
        assert found is not None
        return stays, found, before
    finally:
        await close_pool(pool)
        await close_pool(other)


@long_on_postgres
async def test_recovery_with_old_key_backup_keeps_document_erased(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    stays, found, before = await erase_then_recover(
        settings, database, other_database, overrides, erased_first=False
    )
    assert found.engine_calls == 0 and found.rows > 0
    async with use_pool(other_database, size=2, name="test") as pool:
        assert await find_in_tables(pool, CANARIES) <= {"raw"}, (
            "of the log that lies in the same database, what producers sent"
        )
        assert find_in_files(settings.data_dir, CANARIES) == set()
        assert (
            await pool.fetchval(
                "select count(*) from keystore.keys where wrapped is null "
                "and destroyed_at is not null"
            )
            >= 2
        )
        assert await compute_checksum(pool, include_history=True) == before
        async with run_system(settings, other_database, overrides) as world:
            assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
                stays["document_id"]
            ]
            assert await find_in_tables(pool, CANARIES) <= {"raw"}
            assert await pool.fetchval("select count(*) from dead_letters") == 0
            again = await world.ingest_until_searchable(
                CANARY_TEXT, external_id=f"{METADATA_CANARY}-1"
            )
            assert again["document_id"] in {
                result["document_id"] for result in await world.search(CANARY)
            }, "sent again, it begins another life"


@long_on_kafka
@pytest.mark.parametrize(
    "withdrawn_first",
    [
        pytest.param(False, id="while it answers"),
        pytest.param(True, id="when it was withdrawn", marks=pytest.mark.long),
    ],
)
async def test_recovery_of_unencrypted_tenant_keeps_document_erased(
    tmp_path: Any,
    log_settings: list[str],
    database: str,
    other_database: str,
    overrides: Overrides,
    withdrawn_first: bool,
) -> None:
    settings = load_settings(
        data_dir=tmp_path / "data",
        sets=["logging.level=error", *UNENCRYPTED_SETTINGS, *log_settings],
    )
    stays, _, _ = await erase_then_recover(
        settings, database, other_database, overrides, erased_first=withdrawn_first
    )
    async with use_pool(other_database, size=2, name="test") as pool:
        assert await find_in_tables(pool, CANARIES) <= READABLE_TOPICS
        async with run_system(settings, other_database, overrides) as world:
            assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
                stays["document_id"]
            ]


@pytest.mark.parametrize(
    ("log_kind", "begun"),
    [
        pytest.param("postgres", False, id="postgres-requested"),
        pytest.param("postgres", True, id="postgres-keys destroyed", marks=pytest.mark.long),
        pytest.param(
            "kafka", False, id="kafka-requested", marks=[pytest.mark.kafka, pytest.mark.long]
        ),
        pytest.param("kafka", True, id="kafka-keys destroyed", marks=pytest.mark.kafka),
    ],
    indirect=["log_kind"],
)
async def test_erasure_resumes_after_database_is_rebuilt(
    settings: Settings,
    database: str,
    other_database: str,
    overrides: Overrides,
    begun: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unreadable events restore no rows, and the erasure still finds their blobs."""

    async def never(passing: DrainBarrier) -> None:
        await asyncio.Event().wait()

    async with run_system(settings, database, overrides) as world:
        await ingest_workload(world)
        await world.ingest_until_searchable(
            f"{CANARY_TEXT} In a collection.",
            external_id=f"{METADATA_CANARY}-2",
            collection="birds",
        )
        monkeypatch.setattr(DrainBarrier, "wait_for_all" if begun else "wait_for_arrivals", never)
        receipt = (
            await world.http.post("/v1/erasures", json={"scope": "collection", "name": "birds"})
        ).json()["receipt_id"]
        reached = (
            "select count(*) from keystore.keys where destroyed_at is not null"
            if begun
            else "select count(*) from erasures"
        )
        await eventually(lambda: world.worker.storage.pool.fetchval(reached))
    monkeypatch.undo()
    if settings.log_kind == "postgres":
        await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover_database(settings, other_database) is not None
    async with run_system(settings, other_database, overrides) as world:
        found = await wait_until_erased(world, receipt)
        assert found["documents"] == 1 and found["removed"]["blobs"] >= 1
        assert find_in_files(settings.data_dir, ["In a collection"]) == set()
        assert await find_in_tables(world.worker.storage.pool, ["In a collection"]) <= {"raw"}


@on_kafka
async def test_database_backup_older_than_erasure_prevents_start(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    """Where the log is not among them its readers are further than they are: they would never be
    told.
    """
    async with run_system(settings, database, overrides) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
    await copy_database(database, other_database)
    async with run_system(settings, database, overrides) as world:
        await erase(world, "document", erased["document_id"])
    async with run_system(settings, database, overrides):
        """Started again it goes on."""
    with pytest.raises(ConfigurationError) as refused:
        async with run_system(settings, other_database, overrides):
            raise AssertionError("it has started")
    assert refused.value.code == "TABLES_RESTORED" and "anabranch rebuild" in refused.value.remedy


async def test_recovery_works_when_all_documents_were_erased(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
        await erase(world, "document", erased["document_id"])
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover_database(settings, other_database) is not None
    async with run_system(settings, other_database, overrides) as world:
        stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
            stays["document_id"]
        ]


@pytest.mark.parametrize(
    "readable",
    [
        pytest.param([], id="sealed"),
        # Recovery, which reads the same events, is tested with a readable tenant above.
        pytest.param(UNENCRYPTED_SETTINGS, id="readable", marks=pytest.mark.long),
    ],
)
async def test_rebuild_excludes_erased_documents(
    tmp_path: Any, database: str, overrides: Overrides, readable: list[str]
) -> None:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *readable])
    async with run_system(settings, database, overrides) as world:
        gone, stays = await ingest_workload(world)
        await erase(world, "document", gone["document_id"])
        pool = world.worker.storage.pool
        before = await compute_checksum(pool, include_history=True)
        name = await start_rebuild(
            world.worker.storage, world.worker.builder.decisions, keep_previous=True
        )
        await eventually(
            lambda: pool.fetchval("select name from live_generation"), lambda live: live == name
        )
        assert await compute_checksum(pool, include_history=True) == before
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
            stays["document_id"]
        ]
        clear = {"raw", "outcomes", *(READABLE_TOPICS if readable else ())}
        assert await find_in_tables(pool, CANARIES) <= clear
