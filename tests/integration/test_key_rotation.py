from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from anabranch import key_rotation, secrets
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.key_rotation import rotate_master_key
from anabranch.secrets import MASTER, NEXT, OLD
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from schemas.errors import ConfigurationError
from schemas.events import DocumentRemoved, Fact
from schemas.records import StoredRecord
from schemas.values import Origin
from sql.pool import close_pool, open_pool
from streams.topics import ACCEPTED

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DOCUMENTS = [UUID(int=number) for number in range(1, 8)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error"])


@asynccontextmanager
async def storage(settings: Settings, dsn: str) -> AsyncIterator[Storage]:
    async with prepare_storage(settings, dsn, pool_size=2, name="anabranch worker") as found:
        yield found


async def seal(settings: Settings, dsn: str) -> None:
    async with storage(settings, dsn) as found:
        for document in DOCUMENTS:
            data = DocumentRemoved(
                tenant="default", document_id=document, order=[1, 1], origin=Origin(accepted_id=UUID(int=1), event_id="e", source="s"),
                payload_sha256="", received_at=NOW, reason=f"of {document}",
            )  # fmt: skip
            identity = uuid4()
            fact = Fact(identity, data, "anabranch/receive", str(identity), NOW, "default", document)
            await found.log.append([await found.codec.encode(fact, ACCEPTED, "k")])


async def assert_reads_everything(settings: Settings, dsn: str) -> None:
    async with storage(settings, dsn) as found:
        records: list[StoredRecord] = [stored async for stored in found.log.read(ACCEPTED)]
        assert [(await found.codec.decode(stored)).data.reason for stored in records] == [f"of {document}" for document in DOCUMENTS]
        assert all(found.codec.is_ours(stored) for stored in records), "what the former master key signed is still ours"


async def wrapped(dsn: str) -> list[bytes]:
    pool = await open_pool(dsn, size=1, name="test")
    try:
        return [row["wrapped"] for row in await pool.fetch("select wrapped from keystore.keys order by id")]
    finally:
        await close_pool(pool)


async def test_a_rotated_log_reads_as_before_and_the_old_key_is_gone(settings: Settings, database: str) -> None:
    await seal(settings, database)
    folder, before = settings.data_dir, await wrapped(database)
    old = (folder / MASTER).read_bytes()
    for _ in range(2):
        assert await rotate_master_key(settings, database, None) == len(DOCUMENTS)
        await assert_reads_everything(settings, database)
    assert not set(before) & set(await wrapped(database))
    assert sorted(path.name for path in folder.glob("*master.key")) == [MASTER]
    assert not any(old in path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_it_refuses_while_a_worker_is_connected(settings: Settings, database: str) -> None:
    await seal(settings, database)
    before = await wrapped(database)
    async with storage(settings, database):
        with pytest.raises(ConfigurationError) as refused:
            await rotate_master_key(settings, database, None)
    assert refused.value.code == "PROCESSES_CONNECTED" and "Stop every worker" in refused.value.remedy
    assert await wrapped(database) == before
    await assert_reads_everything(settings, database)
    assert await rotate_master_key(settings, database, None) == len(DOCUMENTS)
    await assert_reads_everything(settings, database)


@pytest.mark.parametrize("step", ["before the keys", "before the files", "between the files", "before the old one is overwritten"])
@pytest.mark.parametrize("again", [True, False], ids=["called again", "started"])
async def test_a_rotation_that_is_killed_loses_no_key(settings: Settings, database: str, monkeypatch: pytest.MonkeyPatch, step: str, again: bool) -> None:
    await seal(settings, database)
    folder, old = settings.data_dir, (settings.data_dir / MASTER).read_bytes()

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    replace = Path.replace

    def die_at_the_second(path: Path, target: Path) -> Path:
        return die() if path.name == NEXT else replace(path, target)  # type: ignore[func-returns-value]

    with monkeypatch.context() as patched:
        match step:
            case "before the keys":
                patched.setattr(key_rotation.PgKeystore, "rotate", die)
            case "before the files":
                patched.setattr(key_rotation, "finish_rotation", die)
            case "between the files":
                patched.setattr(Path, "replace", die_at_the_second)
            case _:
                patched.setattr(secrets, "overwrite", die)
        with pytest.raises(Killed):
            await rotate_master_key(settings, database, None)
    if again:
        await rotate_master_key(settings, database, None)
    await assert_reads_everything(settings, database)
    if step != "before the keys" or again:
        assert (folder / MASTER).read_bytes() != old and not (folder / OLD).exists() and not (folder / NEXT).exists()


async def test_a_key_of_the_settings_is_rotated_to_the_one_in_a_file(tmp_path: Path, database: str) -> None:
    old, new = (b64encode(os.urandom(32)).decode() for _ in range(2))
    given, wanted = (load_settings(data_dir=tmp_path / "data", sets=[f"log.master_key={key}", "logging.level=error"]) for key in (old, new))
    await seal(given, database)
    with pytest.raises(ConfigurationError, match="no new one is given"):
        await rotate_master_key(given, database, None)
    file = tmp_path / "new.key"
    file.write_text("short\n")
    with pytest.raises(ConfigurationError, match="32 bytes"):
        await rotate_master_key(given, database, file)
    file.write_text(f"{new}\n")
    assert await rotate_master_key(given, database, file) == len(DOCUMENTS)
    assert await rotate_master_key(given, database, file) == 0, "called again"
    await assert_reads_everything(wanted, database)
    with pytest.raises(ConfigurationError, match="another master key"):
        await assert_reads_everything(given, database)


async def test_keys_of_an_older_version_get_their_shares(settings: Settings, tmp_path: Path, database: str) -> None:
    """They were wrapped with the master key alone; what is destroyed of them afterwards is gone from the disk."""
    without = settings.model_copy(update={"database": settings.database.model_copy(update={"url": "unused"})})
    await seal(without, database)
    pool = await open_pool(database, size=1, name="test")
    try:
        slots = "select count(*) from keystore.keys where slot is not null"
        assert await pool.fetchval(slots) == 0
        await rotate_master_key(settings, database, None)
        assert await pool.fetchval(slots) == len(DOCUMENTS)
    finally:
        await close_pool(pool)
    await assert_reads_everything(settings, database)
