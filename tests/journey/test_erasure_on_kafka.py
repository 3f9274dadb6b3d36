"""Erasing on real Kafka: what the broker keeps in its files shows a canary nowhere, once the retention of topic `raw` has passed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from streams.kafka.broker import Broker
from streams.kafka.settings import KafkaSettings
from tests.canaries import in_files, in_tables, in_topics
from tests.changing_table import TOPIC, ChangingTable
from tests.journey.conftest import PATIENCE_S, World, running
from tests.journey.test_erasure import CANARY, HEAD, OTHER, TEXT, erase
from tests.kafka_fixture import need_kafka, own_broker

pytestmark = pytest.mark.kafka

WORDS = (CANARY, HEAD)
FORGETFUL = {"retention.ms": "1000", "segment.ms": "1000", "file.delete.delay.ms": "0"}


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[Broker]:
    """One whose files hold nothing else."""
    need_kafka()
    with own_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    return kafka_broker.bootstrap_servers


@pytest.fixture
def settings(tmp_path: Path, kafka_settings: KafkaSettings) -> Settings:
    kafka = [f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}", f"kafka.topic_prefix={kafka_settings.topic_prefix}", "kafka.partitions=2"]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *kafka])


def alter(kafka: KafkaSettings, topics: Iterable[str], values: Mapping[str, str]) -> None:
    """As an operator does, with kafka-configs.sh."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    changes = [ConfigResource(ConfigResource.Type.TOPIC, kafka.topic_prefix + topic, incremental_configs=entries) for topic in topics]
    for future in admin.incremental_alter_configs(changes).values():
        future.result()


def topics(kafka: KafkaSettings) -> set[str]:
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics
    return {name.removeprefix(kafka.topic_prefix) for name in found if name.startswith(kafka.topic_prefix)}


def push(kafka: KafkaSettings, topic: str, records: Iterable[tuple[bytes | None, Mapping[str, str], bytes]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, headers, value in records:
        producer.produce(kafka.topic_prefix + topic, value, key=key, headers=dict(headers))
    assert producer.flush(30) == 0


def event(number: int, payload: Mapping[str, Any] | bytes, **more: str) -> tuple[bytes, dict[str, str], bytes]:
    headers = {"ce_specversion": "1.0", "ce_id": f"{HEAD}/{number}", "ce_source": f"{HEAD} press", "ce_type": "document.received.v1"}
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return f"{HEAD}-{number}".encode(), {**headers, "content-type": "application/json", **more}, body


async def until(true: Any, what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(true):
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"waited in vain: {what}") from None


def in_segments(broker: Broker, kafka: KafkaSettings) -> set[str]:
    """Files of whatever kind, by the topic that they belong to; the broker's own by their names."""
    found = {Path(name).parts[0] for name in in_files(broker.data_dir, WORDS) for name in (name.removeprefix("log/"),)}
    return {folder.removeprefix(kafka.topic_prefix).rpartition("-")[0] or folder for folder in found}


async def sources(world: World, kafka: KafkaSettings) -> None:
    table = ChangingTable()
    table.insert(1, f"{CANARY} in a row.", f"{HEAD} row")
    takes = {"kind": "debezium", "topic": kafka.topic_prefix + TOPIC, "mapping": {"body": ["body"], "title": "title"}}
    response = await world.http.post("/v1/sources", json={"name": "notes", "takes": takes, "collection": "birds"})
    assert response.status_code == 202, response.text
    push(kafka, TOPIC, [(record.key, {name: value.decode() for name, value in record.headers.items()}, record.value or b"") for record in table.records])


async def test_of_what_was_erased_the_broker_keeps_nothing_in_the_clear(
    settings: Settings, kafka_settings: KafkaSettings, kafka_broker: Broker, database: str, overrides: Overrides
) -> None:
    async with running(settings, database, overrides) as world:
        log = world.worker.storage.log
        await log.create_topics({TOPIC: 1}, retention_ms={})
        alter(kafka_settings, await asyncio.to_thread(topics, kafka_settings) - {"chunked"}, {"compression.type": "uncompressed"})
        pool = world.worker.storage.pool
        gone = await world.searchable(TEXT, f"{HEAD}.md", external_id=f"{HEAD}-1", title=f"A {HEAD} title", collection="birds", tags=HEAD)
        stays = await world.searchable(OTHER, external_id="lights")
        push(
            kafka_settings,
            "raw",
            [
                event(
                    2,
                    {"external_id": f"{HEAD}-2", "content": {"text": TEXT + " Again."}, "metadata": {HEAD: CANARY}, "collection": "birds"},
                    ce_correlationid=HEAD,
                    ce_traceparent=HEAD,
                ),
                event(3, {"external_id": f"{HEAD}-3", "content": {"base64": CANARY + "%"}, "collection": "birds"}),
                event(4, {"external_id": f"{HEAD}-4", "content": {"text": CANARY}, HEAD: CANARY}),
                event(5, f"{{{CANARY}".encode()),
            ],
        )
        await sources(world, kafka_settings)
        answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
        await world.http.post("/v1/feedback", json={"run_id": answer["run_id"], "useful": True, "corrected_answer": f"It was {CANARY}.", "note": HEAD})
        async with asyncio.timeout(PATIENCE_S):
            while await pool.fetchval("select count(*) from dead_letters") < 3 or await pool.fetchval("select count(*) from visible") < 4:
                await asyncio.sleep(0.1)
        clear = {"raw", "outcomes", TOPIC}
        assert await asyncio.to_thread(in_topics, kafka_settings, WORDS) == clear, "sealed from the start, whatever a producer wrote where"
        assert await asyncio.to_thread(in_segments, kafka_broker, kafka_settings) == clear
        shown = await in_tables(pool, WORDS)
        assert {"anabranch.dead_letters", "anabranch.source_changes", "anabranch.runs", "anabranch.feedback", "anabranch.memo"} <= shown

        first = await erase(world, "collection", "birds")
        assert first["documents"] == 4 and first["removed"]["source_changes"] == 1 and first["removed"]["feedback"] == 1
        assert first["remains"][-1].startswith("sources: 1 of these documents")
        assert await in_tables(pool, WORDS) == {"anabranch.dead_letters"}, "what never was a document is in no collection"
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
        assert (await world.http.get(f"/v1/documents/{gone['document_id']}")).status_code == 404

        alter(kafka_settings, ["raw", "outcomes"], FORGETFUL)
        second = await erase(world, "tenant", "default")
        assert first["removed"]["dead_letters"] == 1 and second["removed"]["dead_letters"] == 2
        assert datetime.fromisoformat(second["raw_until"]) - datetime.fromisoformat(second["completed_at"]) == timedelta(seconds=1 + 1 + 0 + 5)
        assert await in_tables(pool, WORDS) == set()
        assert in_files(settings.data_dir, WORDS) == set()
        await until(lambda: in_topics(kafka_settings, WORDS) | in_segments(kafka_broker, kafka_settings) == {TOPIC}, "the end of what topic raw keeps")
