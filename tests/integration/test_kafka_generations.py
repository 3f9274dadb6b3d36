"""Generations on real Kafka: rebuilt, indexed anew, and filled again from the log when the database is lost."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient

from anabranch.background.recovery import recover
from anabranch.desk.dropping import drop_generation
from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings_loading import load_settings
from sql.checksum import checksum
from streams.kafka.settings import KafkaSettings
from tests.both_logs import on_kafka
from tests.integration.test_recovery import copy_keys
from tests.integration.test_reindex import CHANGES, OVERRIDES, TEXTS, WORDS, reindexing
from tests.pipeline import pipeline


@on_kafka
async def test_a_rebuild_a_reindex_a_recovery_and_a_drop_end_in_the_same_documents(
    log_sets: list[str], kafka_settings: KafkaSettings, database: str, other_database: str, tmp_path: Path
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=log_sets)
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
        plan = (await reindexing(at_work).plan(sets)).body()
        shadow, _ = await reindexing(at_work).start(sets)
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
        assert topics(kafka_settings) >= {"embedded", f"embedded.{shadow}"}
        await drop_generation(again.pool, again.worker.storage.log, again.worker.builder.decisions, shadow)
        await again.until(lambda: gone(kafka_settings, shadow))
        await again.fill({"doc-5": "Changed when it had gone."})
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0


async def gone(kafka: KafkaSettings, generation: str) -> bool:
    """None of the topics that were made for it is left; those of others are."""
    there = topics(kafka)
    assert {"ocr_done", "chunked", "embedded", "entities"} <= there
    return not any(topic.endswith(f".{generation}") for topic in there)


def topics(kafka: KafkaSettings) -> set[str]:
    found = AdminClient({**kafka.for_librdkafka()}).list_topics(timeout=10).topics
    return {name.removeprefix(kafka.topic_prefix) for name in found if name.startswith(kafka.topic_prefix)}
