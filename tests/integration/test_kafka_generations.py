"""Rebuild, reindex and recover generations on real Kafka."""

from __future__ import annotations

from pathlib import Path

from anabranch.composition.storage import recover_database
from anabranch.config.loader import load_settings
from services.generations.reindex import start_rebuild
from services.generations.service import remove_generation
from sql.operations.integrity import compute_checksum
from streams.kafka.client import KafkaClientSettings
from tests.support.database_copies import copy_keys
from tests.support.kafka_fixture import list_topics
from tests.support.log_backends import on_kafka
from tests.support.pipeline import run_pipeline
from tests.support.reindex_cases import (
    OVERRIDES,
    SETTING_CHANGES,
    TEXTS,
    WORDS,
    make_reindex_service,
)


@on_kafka
async def test_rebuild_reindex_recovery_and_drop_keep_documents(
    log_settings: list[str],
    kafka_settings: KafkaClientSettings,
    database: str,
    other_database: str,
    tmp_path: Path,
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=log_settings)
    sets, _ = SETTING_CHANGES["embedder"]
    async with run_pipeline(tmp_path, database, OVERRIDES, settings) as at_work:
        await at_work.push_and_wait(TEXTS)
        await at_work.push_and_wait({"doc-0": f"Changed.\n{WORDS}", "doc-1": None})
        before, engine_calls = (
            await compute_checksum(at_work.pool, include_history=True),
            at_work.count_engine_calls(),
        )
        storage, decisions = at_work.worker.storage, at_work.worker.builder.decisions
        name = await start_rebuild(storage, decisions, keep_previous=True)
        await at_work.wait_for_state(name, "live")
        assert await compute_checksum(at_work.pool, include_history=True) == before
        assert at_work.count_engine_calls() == engine_calls
        plan = (await make_reindex_service(at_work).plan_build(sets)).to_dict()
        shadow, _ = await make_reindex_service(at_work).start_reindex(sets)
        build = await at_work.wait_for_state(shadow, "shadow")
        assert dict(build.engine_calls) == plan["engine_calls"] == {"embed": 11}
        await at_work.wait_until_idle()
    await copy_keys(database, other_database)
    found = await recover_database(settings, other_database)
    assert found is not None and found.engine_calls == 0
    async with run_pipeline(tmp_path, other_database, OVERRIDES, settings) as again:
        await again.wait_until_idle()
        assert await compute_checksum(again.pool, include_history=True) == before
        await again.push_and_wait({"doc-3": "Changed afterwards.", "doc-4": None})
        assert set(again.count_engine_calls().values()) <= {1.0, 2.0}
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
        assert list_topics(kafka_settings) >= {"embedded", f"embedded.{shadow}"}
        await remove_generation(
            again.pool, again.worker.storage.log, again.worker.builder.decisions, shadow
        )
        await again.wait_for(lambda: are_generation_topics_deleted(kafka_settings, shadow))
        await again.push_and_wait({"doc-5": "Changed when it had gone."})
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0


async def are_generation_topics_deleted(kafka: KafkaClientSettings, generation: str) -> bool:
    """Return whether its own topics are deleted and those of others still exist."""
    there = list_topics(kafka)
    assert {"ocr_done", "chunked", "embedded", "entities"} <= there
    return not any(topic.endswith(f".{generation}") for topic in there)
