"""Rebuild the tables beside the live generation without calling an engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from processors import TOPICS
from schemas.errors import PermanentError
from services.generations.reindex import start_rebuild
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.operations.integrity import compute_checksum
from tests.support.document_history import WORDS, push_history
from tests.support.pipeline import Pipeline, run_pipeline


async def test_rebuild_equals_live_generation_without_engine_calls(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await push_history(at_work)
        await at_work.correct_entities()
        before, engine_calls = (
            await compute_checksum(at_work.pool, include_history=True),
            at_work.count_engine_calls(),
        )
        storage = at_work.worker.storage
        outcome_bounds = await storage.log.fetch_offset_bounds("outcomes")
        name = await start_rebuild(
            at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=False
        )
        build = await at_work.wait_for_state(name, "live")
        assert await compute_checksum(at_work.pool, include_history=True) == before
        assert at_work.count_engine_calls() == engine_calls and engine_calls["embed"] > 0
        assert build.engine_calls == {} and build.purpose == "rebuild" and build.base == "g1"
        assert build.rows and build.events == sum(topic.per_generation for topic in TOPICS) * 44
        assert await storage.log.fetch_offset_bounds("outcomes") == outcome_bounds
        await at_work.wait_for(lambda: are_tables_dropped(at_work, "g1"))


async def test_documents_can_change_during_and_after_rebuild(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await push_history(at_work)
        outcomes = "select count(distinct headers->>'ce_id') from events where topic = 'outcomes'"
        name = await start_rebuild(
            at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=False
        )
        for number in range(12):
            await at_work.push(
                {
                    f"late-{number}": f"Late number {number}.\n{WORDS}",
                    f"doc-{number}": f"Changed to {number}.",
                    f"doc-{number + 20}": None,
                }
            )
            await asyncio.sleep(0.1)
        await at_work.wait_for_state(name, "live")
        await at_work.wait_for(lambda: are_tables_dropped(at_work, "g1"))
        await at_work.push_and_wait(
            {"last": "The last one comes when the old one has gone.", "doc-39": None}
        )
        live = await compute_checksum(at_work.pool)
        n_outcomes = await at_work.pool.fetchval(outcomes)
        shown = {
            row["external_id"]
            for row in await at_work.pool.fetch(
                "select external_id from visible join documents on id = document_id "
                "where generation = $1",
                name,
            )
        }
        assert {"last", "late-11"} <= shown and "doc-39" not in shown
        again = await start_rebuild(
            at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=True
        )
        await at_work.wait_for_state(again, "live")
        await at_work.wait_until_idle()
        assert await compute_checksum(at_work.pool) == live
        assert await at_work.pool.fetchval(outcomes) == n_outcomes == at_work.n_pushed
        assert await at_work.pool.fetchval("select count(*) from dead_letters") == 0


async def test_rebuild_of_truncated_log_names_missing_range(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await at_work.push_and_wait({f"doc-{number}": f"{WORDS} {number}" for number in range(5)})
        deleted_positions = [
            row["position"]
            for row in await at_work.pool.fetch(
                "select position from events where topic = 'embedded' order by position limit 2"
            )
        ]
        await at_work.pool.execute(
            "delete from events where position = any($1::bigint[])", deleted_positions
        )
        with pytest.raises(
            PermanentError, match=f"embedded, partition 0: offsets {deleted_positions[0]} to "
        ) as refused:
            await start_rebuild(
                at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=False
            )
        assert refused.value.code == "NOT_RETAINED"
        assert await at_work.pool.fetchval("select count(*) from generations") == 1


async def are_tables_dropped(at_work: Pipeline, name: str) -> bool:
    found = await at_work.pool.fetchval(
        "select count(*) from pg_class where relname = any($1::text[])",
        [f"{table}_{name}" for table in PARTITIONED_TABLES],
    )
    return bool(found == 0)
