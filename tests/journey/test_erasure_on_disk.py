"""After an erasure no file of the embedded server holds the keys or the text."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from anabranch.config.overrides import Overrides
from anabranch.config.settings import KEY_FILE_NAME, Settings
from anabranch.encryption.codec import KeyFile, resolve_master_key
from schemas.errors import KeyLost
from schemas.ports.keys import StoredKey
from sql.database import close_pool, open_pool, use_pool
from sql.embedded.server import EPHEMERAL_SETTINGS, EmbeddedPostgres
from sql.operations.keystore import PgKeystore
from streams.payload_keys import KeyWrapper
from tests.support.api_world import run_system
from tests.support.canaries import read_files
from tests.support.erasure import (
    CANARY,
    CANARY_TEXT,
    METADATA_CANARY,
    OTHER_TEXT,
    erase,
    ingest_canary,
)

UNCOMPRESSED_WAL = {**EPHEMERAL_SETTINGS, "wal_compression": "off"}
"""Compressed pages in the write-ahead log would hide what this test looks for."""


@pytest.fixture
def embedded_server(settings: Settings) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(settings.data_dir / "postgres", settings=UNCOMPRESSED_WAL)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(server.root)


def find_in_folders(folders: list[Path], wanted: dict[str, bytes]) -> set[str]:
    """Return `what: file` for each text that a file contains, ignoring case."""
    return {
        f"{what}: {path}"
        for path, data in read_files(*folders)
        for what, value in wanted.items()
        if value in data or value.lower() in data.lower()
    }


async def fetch_live_keys(dsn: str, subject: str | None = None) -> list[StoredKey]:
    async with use_pool(dsn, size=1, name="test") as pool:
        query = (
            "select id, tenant, subject, wrapped, slot from keystore.keys "
            "where wrapped is not null and subject::text = coalesce($1, subject::text)"
        )
        return [
            StoredKey(row["id"], row["tenant"], row["subject"], row["wrapped"], slot=row["slot"])
            for row in await pool.fetch(query, subject)
        ]


async def test_erased_keys_and_text_are_in_no_file(
    settings: Settings, embedded_server: EmbeddedPostgres, overrides: Overrides
) -> None:
    folders = [settings.data_dir, embedded_server.root]
    async with run_system(settings, embedded_server.dsn, overrides) as world:
        erased = await ingest_canary(world)
        stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
        await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
        await world.wait_until_all_stages_done(erased)
        keys = await fetch_live_keys(embedded_server.dsn, erased["document_id"])
        shares, master = (
            KeyFile(settings.data_dir / KEY_FILE_NAME),
            resolve_master_key(settings, None),
        )
        wanted = {"text": CANARY.encode(), "name": METADATA_CANARY.encode()}
        for number, key in enumerate(keys):
            assert key.slot is not None and key.wrapped_key is not None
            share = shares.read(key.slot)
            assert share is not None
            wanted |= {f"share {number}": share, f"wrapped key {number}": key.wrapped_key}
            assert KeyWrapper(master, shares).unwrap(key) not in (share, key.wrapped_key)
        assert {
            found.partition(":")[0] for found in find_in_folders(folders, wanted)
        } == wanted.keys(), "the scan sees them before"

        receipt = await erase(world, "document", erased["document_id"])

        assert find_in_folders(folders, wanted) == set()
        for key in keys:
            with pytest.raises(KeyLost):
                KeyWrapper(master, shares).unwrap(key)
        assert not any(
            "write-ahead" in place or "free space" in place for place in receipt["remains"]
        )
        assert any("backups" in place for place in receipt["remains"])
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
            stays["document_id"]
        ]
        async with use_pool(embedded_server.dsn, size=1, name="test") as pool:
            assert (
                await pool.fetchval(
                    "select count(*) from pg_stats "
                    "where strpos(lower(pg_stats::text), lower($1)) > 0",
                    CANARY,
                )
                == 0
            )


async def test_restart_overwrites_key_share_left_by_killed_worker(
    settings: Settings, embedded_server: EmbeddedPostgres, overrides: Overrides
) -> None:
    """Kill the worker after it deletes the key's row and before its share."""
    async with run_system(settings, embedded_server.dsn, overrides) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT)
        [key] = await fetch_live_keys(embedded_server.dsn, erased["document_id"])
    assert (
        key.slot is not None
        and KeyFile(settings.data_dir / KEY_FILE_NAME).read(key.slot) is not None
    )
    pool = await open_pool(embedded_server.dsn, size=1, name="test")
    await PgKeystore(pool).destroy(key.tenant, [key.id])
    await close_pool(pool)
    async with run_system(settings, embedded_server.dsn, overrides):
        assert KeyFile(settings.data_dir / KEY_FILE_NAME).read(key.slot) is None
        for other in await fetch_live_keys(embedded_server.dsn):
            assert (
                other.slot is not None
                and KeyFile(settings.data_dir / KEY_FILE_NAME).read(other.slot) is not None
            ), "live keys keep theirs"


async def test_keys_created_during_erasure_are_kept(
    settings: Settings, embedded_server: EmbeddedPostgres, overrides: Overrides
) -> None:
    async with run_system(settings, embedded_server.dsn, overrides) as world:
        first = [
            await world.ingest_until_searchable(f"{CANARY} number {number} sleeps.")
            for number in range(4)
        ]
        erasing = [
            asyncio.create_task(erase(world, "document", one["document_id"])) for one in first
        ]
        later = [
            await world.ingest_until_searchable(f"Heron number {number} stands.")
            for number in range(8)
        ]
        await asyncio.gather(*erasing)
        found = {result["document_id"] for result in await world.search("heron stands", k=20)}
        assert {one["document_id"] for one in later} <= found
        shares, master = (
            KeyFile(settings.data_dir / KEY_FILE_NAME),
            resolve_master_key(settings, None),
        )
        for key in await fetch_live_keys(embedded_server.dsn):
            assert AESGCM(KeyWrapper(master, shares).unwrap(key))
