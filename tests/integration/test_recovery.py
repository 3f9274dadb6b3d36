"""Recover a lost database from the log, the blobs and the keys."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from anabranch.composition.storage import recover_database
from anabranch.config.settings import Settings
from schemas.errors import ConfigurationError
from schemas.events import EntityAmended, build_root_event
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from sql.operations.integrity import compute_checksum
from tests.support.database_copies import copy_keys, copy_log
from tests.support.document_history import TEXTS, push_history
from tests.support.pipeline import Pipeline, run_pipeline

ENTITY_ID = UUID(int=7)
ALIASES = "select tenant, alias from entity_aliases where not is_removed"


async def add_alias(pipeline: Pipeline, alias: str, *, is_removed: bool = False) -> None:
    storage = pipeline.worker.storage
    change = {"remove_aliases" if is_removed else "add_aliases": [alias]}
    event = build_root_event(
        EntityAmended(tenant="default", entity_id=ENTITY_ID, **change),
        uuid4(),
        "anabranch/entities",
        utc_now,
    )
    await storage.log.append([await storage.codec.encode(event, CONTROL, str(ENTITY_ID))])


async def test_empty_tables_are_recovered_from_log_without_engines(
    database: str, other_database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await push_history(at_work)
        await at_work.correct_entities()
        before = await compute_checksum(at_work.pool, include_history=True)
        await add_alias(at_work, "the Kept")
        await add_alias(at_work, "the Dropped")
        await add_alias(at_work, "the Dropped", is_removed=True)
        number = at_work.n_pushed
    await copy_log(database, other_database)
    with pytest.raises(ConfigurationError) as refused:
        await recover_database(Settings(data_dir=tmp_path), other_database)
    assert refused.value.code == "KEYSTORE_MISSING"
    await copy_keys(database, other_database)
    found = await recover_database(Settings(data_dir=tmp_path), other_database)
    assert found is not None and found.engine_calls == 0 and found.rows > 0
    assert await recover_database(Settings(data_dir=tmp_path), other_database) is None
    async with run_pipeline(tmp_path, other_database) as again:
        assert [tuple(row) for row in await again.pool.fetch(ALIASES)] == [("default", "the Kept")]
        again.n_pushed = number
        assert await compute_checksum(again.pool, include_history=True) == before
        await again.wait_until_idle()
        assert await compute_checksum(again.pool, include_history=True) == before
        assert again.count_engine_calls() == {}
        await again.push_and_wait(
            {
                "doc-7": "Changed after the disaster.",
                "new": "Came after it.",
                "doc-8": None,
                "doc-9": TEXTS["doc-9"],
            }
        )
        shown = await again.pool.fetch(
            "select d.external_id from visible v join documents d on d.id = v.document_id"
        )
        assert {"doc-7", "new", "doc-9"} <= {
            row["external_id"] for row in shown
        } and "doc-8" not in {row["external_id"] for row in shown}
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
        assert again.count_engine_calls()["embed"] == 2


async def test_new_database_is_not_recovered(database: str, tmp_path: Path) -> None:
    assert await recover_database(Settings(data_dir=tmp_path), database) is None
