"""After a finished receipt no file of the embedded server holds the destroyed keys or the text, and the log does not open again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from anabranch.composition.overrides import Overrides
from anabranch.composition.sealing import SHARES, configured_master_key
from anabranch.key_file import KeyFile
from anabranch.settings import Settings
from schemas.errors import KeyLost
from schemas.ports.keys import StoredKey
from sql.embedded import THROWAWAY, EmbeddedPostgres
from sql.keystore import DESTROY
from sql.pool import close_pool, open_pool
from streams.keys import Wrapping
from tests.journey.conftest import running
from tests.journey.test_erasure import CANARY, HEAD, OTHER, TEXT, erase

READABLE = {**THROWAWAY, "wal_compression": "off"}
"""Compressed pages in the write-ahead log would hide what this test looks for."""


@pytest.fixture
def embedded(settings: Settings) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(settings.data_dir / "postgres", settings=READABLE)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(server.root)


def files_with(folders: list[Path], wanted: dict[str, bytes]) -> set[str]:
    """`what: file` for each thing that a file holds, in any case of its letters."""
    found = set()
    for path in {path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}:
        data = path.read_bytes()
        found |= {f"{what}: {path}" for what, value in wanted.items() if value in data or value.lower() in data.lower()}
    return found


async def keys_of(dsn: str, subject: str | None = None) -> list[StoredKey]:
    pool = await open_pool(dsn, size=1, name="test")
    try:
        query = "select id, tenant, subject, wrapped, slot from keystore.keys where wrapped is not null and subject::text = coalesce($1, subject::text)"
        return [StoredKey(row["id"], row["tenant"], row["subject"], row["wrapped"], slot=row["slot"]) for row in await pool.fetch(query, subject)]
    finally:
        await close_pool(pool)


async def test_no_file_holds_a_destroyed_key_or_the_text(settings: Settings, embedded: EmbeddedPostgres, overrides: Overrides) -> None:
    folders = [settings.data_dir, embedded.root]
    async with running(settings, embedded.dsn, overrides) as world:
        gone = await world.searchable(TEXT, f"{HEAD}.md", external_id=f"{HEAD}-1", title=f"A {HEAD} title")
        stays = await world.searchable(OTHER, external_id="lights")
        await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
        await world.through(gone)
        keys = await keys_of(embedded.dsn, gone["document_id"])
        shares, master = KeyFile(settings.data_dir / SHARES), configured_master_key(settings, None)
        wanted = {"text": CANARY.encode(), "name": HEAD.encode()}
        for number, key in enumerate(keys):
            assert key.slot is not None and key.wrapped is not None
            share = shares.read(key.slot)
            assert share is not None
            wanted |= {f"share {number}": share, f"wrapped key {number}": key.wrapped}
            assert Wrapping(master, shares).unwrap(key) not in (share, key.wrapped)
        assert {found.partition(":")[0] for found in files_with(folders, wanted)} == wanted.keys(), "the scan sees them before"

        receipt = await erase(world, "document", gone["document_id"])

        assert files_with(folders, wanted) == set()
        for key in keys:
            with pytest.raises(KeyLost):
                Wrapping(master, shares).unwrap(key)
        assert not any("write-ahead" in place or "free space" in place for place in receipt["remains"])
        assert any("backups" in place for place in receipt["remains"])
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
        pool = await open_pool(embedded.dsn, size=1, name="test")
        try:
            assert await pool.fetchval("select count(*) from pg_stats where strpos(lower(pg_stats::text), lower($1)) > 0", CANARY) == 0
        finally:
            await close_pool(pool)


async def test_a_share_that_a_killed_worker_left_is_overwritten_at_the_next_start(settings: Settings, embedded: EmbeddedPostgres, overrides: Overrides) -> None:
    """Killed between the row of the key and its share."""
    async with running(settings, embedded.dsn, overrides) as world:
        gone = await world.searchable(TEXT)
        [key] = await keys_of(embedded.dsn, gone["document_id"])
    assert key.slot is not None and KeyFile(settings.data_dir / SHARES).read(key.slot) is not None
    pool = await open_pool(embedded.dsn, size=1, name="test")
    await pool.execute(DESTROY, key.tenant, [key.id])
    await close_pool(pool)
    async with running(settings, embedded.dsn, overrides):
        assert KeyFile(settings.data_dir / SHARES).read(key.slot) is None
        for other in await keys_of(embedded.dsn):
            assert other.slot is not None and KeyFile(settings.data_dir / SHARES).read(other.slot) is not None, "live keys keep theirs"


async def test_keys_made_while_others_are_destroyed_are_not_lost(settings: Settings, embedded: EmbeddedPostgres, overrides: Overrides) -> None:
    async with running(settings, embedded.dsn, overrides) as world:
        first = [await world.searchable(f"{CANARY} number {number} sleeps.") for number in range(4)]
        erasing = [asyncio.create_task(erase(world, "document", one["document_id"])) for one in first]
        later = [await world.searchable(f"Heron number {number} stands.") for number in range(8)]
        await asyncio.gather(*erasing)
        found = {result["document_id"] for result in await world.search("heron stands", k=20)}
        assert {one["document_id"] for one in later} <= found
        shares, master = KeyFile(settings.data_dir / SHARES), configured_master_key(settings, None)
        for key in await keys_of(embedded.dsn):
            assert AESGCM(Wrapping(master, shares).unwrap(key))
