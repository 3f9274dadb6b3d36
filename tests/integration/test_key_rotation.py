from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from anabranch.composition.storage import prepare_storage
from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.encryption import codec
from anabranch.encryption.codec import MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE
from anabranch.process import key_rotation
from anabranch.process.key_rotation import rotate_master_key
from schemas.errors import ConfigurationError
from schemas.events import DocumentRemoved, Event
from schemas.topics import ACCEPTED, StoredRecord
from schemas.values import Origin
from services.storage import Storage
from sql.database import use_pool

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DOCUMENTS = [UUID(int=number) for number in range(1, 8)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error"])


@asynccontextmanager
async def open_test_storage(settings: Settings, dsn: str) -> AsyncIterator[Storage]:
    async with prepare_storage(settings, dsn, pool_size=2, name="anabranch worker") as found:
        yield found


async def append_sealed_events(settings: Settings, dsn: str) -> None:
    async with open_test_storage(settings, dsn) as found:
        for document in DOCUMENTS:
            data = DocumentRemoved(
                tenant="default",
                document_id=document,
                order=[1, 1],
                origin=Origin(accepted_id=UUID(int=1), event_id="e", source="s"),
                payload_sha256="",
                received_at=NOW,
                reason=f"of {document}",
            )
            identity = uuid4()
            fact = Event(
                identity, data, "anabranch/receive", str(identity), NOW, "default", document
            )
            await found.log.append([await found.codec.encode(fact, ACCEPTED, "k")])


async def assert_all_events_readable(settings: Settings, dsn: str) -> None:
    async with open_test_storage(settings, dsn) as found:
        records: list[StoredRecord] = [stored async for stored in found.log.read(ACCEPTED)]
        assert [(await found.codec.decode(stored)).data.reason for stored in records] == [
            f"of {document}" for document in DOCUMENTS
        ]
        assert all(found.codec.is_own_record(stored) for stored in records), (
            "what the former master key signed is still ours"
        )


async def fetch_wrapped_keys(dsn: str) -> list[bytes]:
    async with use_pool(dsn, size=1, name="test") as pool:
        return [
            row["wrapped"]
            for row in await pool.fetch("select wrapped from keystore.keys order by id")
        ]


async def test_log_is_readable_after_key_rotation(settings: Settings, database: str) -> None:
    await append_sealed_events(settings, database)
    folder, before = settings.data_dir, await fetch_wrapped_keys(database)
    old = (folder / MASTER_KEY_FILE).read_bytes()
    for _ in range(2):
        assert await rotate_master_key(settings, database, None) == len(DOCUMENTS)
        await assert_all_events_readable(settings, database)
    assert not set(before) & set(await fetch_wrapped_keys(database))
    assert sorted(path.name for path in folder.glob("*master.key")) == [MASTER_KEY_FILE]
    assert not any(old in path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_rotation_is_refused_while_worker_is_connected(
    settings: Settings, database: str
) -> None:
    await append_sealed_events(settings, database)
    before = await fetch_wrapped_keys(database)
    async with open_test_storage(settings, database):
        with pytest.raises(ConfigurationError) as refused:
            await rotate_master_key(settings, database, None)
    assert (
        refused.value.code == "PROCESSES_CONNECTED" and "Stop every worker" in refused.value.remedy
    )
    assert await fetch_wrapped_keys(database) == before
    await assert_all_events_readable(settings, database)
    assert await rotate_master_key(settings, database, None) == len(DOCUMENTS)
    await assert_all_events_readable(settings, database)


@pytest.mark.parametrize(
    "step",
    [
        "before the keys",
        "before the files",
        "between the files",
        "before the old one is overwritten",
    ],
)
@pytest.mark.parametrize("again", [True, False], ids=["called again", "started"])
async def test_interrupted_rotation_loses_no_key(
    settings: Settings, database: str, monkeypatch: pytest.MonkeyPatch, step: str, again: bool
) -> None:
    await append_sealed_events(settings, database)
    folder, old = settings.data_dir, (settings.data_dir / MASTER_KEY_FILE).read_bytes()

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    replace = Path.replace

    def die_at_the_second(path: Path, target: Path) -> Path:
        if path.name == NEXT_MASTER_KEY_FILE:
            raise Killed
        return replace(path, target)

    with monkeypatch.context() as patched:
        match step:
            case "before the keys":
                patched.setattr(key_rotation.PgKeystore, "rotate", die)
            case "before the files":
                patched.setattr(key_rotation, "finish_rotation", die)
            case "between the files":
                patched.setattr(Path, "replace", die_at_the_second)
            case _:
                patched.setattr(codec, "overwrite_and_delete", die)
        with pytest.raises(Killed):
            await rotate_master_key(settings, database, None)
    if again:
        await rotate_master_key(settings, database, None)
    await assert_all_events_readable(settings, database)
    if step != "before the keys" or again:
        assert (
            (folder / MASTER_KEY_FILE).read_bytes() != old
            and not (folder / OLD_MASTER_KEY_FILE).exists()
            and not (folder / NEXT_MASTER_KEY_FILE).exists()
        )


async def test_key_in_settings_is_rotated_to_key_file(tmp_path: Path, database: str) -> None:
    old, new = (b64encode(os.urandom(32)).decode() for _ in range(2))
    given, wanted = (
        load_settings(
            data_dir=tmp_path / "data", sets=[f"log.master_key={key}", "logging.level=error"]
        )
        for key in (old, new)
    )
    await append_sealed_events(given, database)
    with pytest.raises(ConfigurationError, match="no new key was given"):
        await rotate_master_key(given, database, None)
    file = tmp_path / "new.key"
    file.write_text("short\n")
    with pytest.raises(ConfigurationError, match="32 bytes"):
        await rotate_master_key(given, database, file)
    file.write_text(f"{new}\n")
    assert await rotate_master_key(given, database, file) == len(DOCUMENTS)
    assert await rotate_master_key(given, database, file) == 0, "called again"
    await assert_all_events_readable(wanted, database)
    with pytest.raises(ConfigurationError, match="another master key"):
        await assert_all_events_readable(given, database)


async def test_keys_of_older_version_are_split_into_shares(
    settings: Settings, tmp_path: Path, database: str
) -> None:
    """They were wrapped with the master key alone; what is destroyed of them afterwards is gone
    from the disk.
    """
    without = settings.model_copy(
        update={"database": settings.database.model_copy(update={"url": "unused"})}
    )
    await append_sealed_events(without, database)
    async with use_pool(database, size=1, name="test") as pool:
        slots = "select count(*) from keystore.keys where slot is not null"
        assert await pool.fetchval(slots) == 0
        await rotate_master_key(settings, database, None)
        assert await pool.fetchval(slots) == len(DOCUMENTS)
    await assert_all_events_readable(settings, database)
