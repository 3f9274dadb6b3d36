"""The database is lost; the log, the blobs and the keys are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.background.recovery import recover
from anabranch.settings import Settings
from schemas.errors import ConfigurationError
from sql.checksum import checksum
from sql.pool import Pool, close_pool, open_pool
from tests.integration.test_rebuild import TEXTS, with_history
from tests.pipeline import pipeline


async def copy_log(source: str, target: str) -> None:
    """As a dump of the log's own tables would be restored; places of readers are lost, and so are transaction numbers."""
    old, new = await open_pool(source, size=2, name="test"), await open_pool(target, size=2, name="test")
    await copy_table(old, new, "events", "position, topic, key, headers, value, appended_at", "xact", "'3'::xid8")
    await new.execute("select setval(pg_get_serial_sequence('events', 'position'), (select max(position) from events))")
    await close_pool(old)
    await close_pool(new)


async def copy_keys(source: str, target: str) -> None:
    """As a backup of the keystore would be restored."""
    old, new = await open_pool(source, size=2, name="test"), await open_pool(target, size=2, name="test")
    for row in await old.fetch("select table_name from information_schema.tables where table_schema = 'keystore'"):
        await copy_table(old, new, f"keystore.{row['table_name']}", "*")
    await close_pool(old)
    await close_pool(new)


async def copy_table(old: Pool, new: Pool, table: str, columns: str, more: str = "", value: str = "") -> None:
    rows = await old.fetch(f"select {columns} from {table}")
    if not rows:
        return
    names = list(rows[0].keys())
    places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    extra = (f", {more}", f", {value}") if more else ("", "")
    overriding = "overriding system value " if table == "events" else ""
    await new.executemany(
        f"insert into {table} ({', '.join(names)}{extra[0]}) {overriding}values ({places}{extra[1]}) on conflict do nothing", [tuple(row) for row in rows]
    )


async def test_empty_tables_are_filled_from_the_log_without_any_engine_and_work_goes_on(database: str, other_database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database) as at_work:
        await with_history(at_work)
        before = await checksum(at_work.pool, everything=True)
        number = at_work.number
    await copy_log(database, other_database)
    with pytest.raises(ConfigurationError) as refused:
        await recover(Settings(data_dir=tmp_path), other_database)
    assert refused.value.code == "KEYSTORE_MISSING"
    await copy_keys(database, other_database)
    found = await recover(Settings(data_dir=tmp_path), other_database)
    assert found is not None and found["engine_calls"] == 0 and found["rows"] > 0
    assert await recover(Settings(data_dir=tmp_path), other_database) is None
    async with pipeline(tmp_path, other_database) as again:
        again.number = number
        assert await checksum(again.pool, everything=True) == before
        await again.quiet()
        assert await checksum(again.pool, everything=True) == before
        assert again.engine_calls() == {}
        await again.fill({"doc-7": "Changed after the disaster.", "new": "Came after it.", "doc-8": None, "doc-9": TEXTS["doc-9"]})
        shown = await again.pool.fetch("select d.external_id from visible v join documents d on d.id = v.document_id")
        assert {"doc-7", "new", "doc-9"} <= {row["external_id"] for row in shown} and "doc-8" not in {row["external_id"] for row in shown}
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
        assert again.engine_calls()["embed"] == 2


async def test_a_database_that_never_held_anything_is_left_alone(database: str, tmp_path: Path) -> None:
    assert await recover(Settings(data_dir=tmp_path), database) is None
