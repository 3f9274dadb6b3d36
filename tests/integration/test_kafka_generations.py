"""Generations on real Kafka: rebuilt, indexed anew, and filled again from the log when the database is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.background.recovery import recover
from anabranch.desk.rebuilding import Reindexing, start_rebuild
from anabranch.settings import KafkaSettings as KafkaOptions
from anabranch.settings import Settings
from sql.checksum import checksum
from streams.kafka.settings import KafkaSettings
from tests.integration.test_recovery import copy_keys
from tests.integration.test_reindex import CHANGES, OVERRIDES, TEXTS, WORDS
from tests.pipeline import pipeline

pytestmark = pytest.mark.kafka


async def test_a_rebuild_a_reindex_and_a_recovery_end_in_the_same_documents(
    kafka_settings: KafkaSettings, database: str, other_database: str, tmp_path: Path
) -> None:
    kafka = KafkaOptions(bootstrap_servers=kafka_settings.bootstrap_servers, topic_prefix=kafka_settings.topic_prefix, partitions=3)
    settings = Settings(data_dir=tmp_path, kafka=kafka)
    sets, _ = CHANGES["embedder"]
    async with pipeline(tmp_path, database, OVERRIDES, settings) as at_work:
        await at_work.fill(TEXTS)
        await at_work.fill({"doc-0": f"Changed.\n{WORDS}", "doc-1": None})
        before, asked = await checksum(at_work.pool, everything=True), at_work.engine_calls()
        storage, decisions = at_work.worker.storage, at_work.worker.builder.decisions
        name = await start_rebuild(storage, decisions, keep=True)
        await at_work.reaches(name, "live")
        assert await checksum(at_work.pool, everything=True) == before
        assert at_work.engine_calls() == asked
        reindexing = Reindexing(settings, storage, decisions, OVERRIDES)
        plan = (await reindexing.plan(sets)).body()
        shadow, _ = await reindexing.start(sets)
        build = await at_work.reaches(shadow, "shadow")
        assert dict(build.engine_calls) == plan["engine_calls"] == {"embed": 11}
        await at_work.quiet()
    await copy_keys(database, other_database)
    found = await recover(settings, other_database)
    assert found is not None and found["engine_calls"] == 0
    async with pipeline(tmp_path, other_database, OVERRIDES, settings) as again:
        await again.quiet()
        assert await checksum(again.pool, everything=True) == before
        await again.fill({"doc-3": "Changed afterwards.", "doc-4": None})
        assert set(again.engine_calls().values()) <= {1.0, 2.0}
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
