"""Erase on real Kafka: the broker's files contain no canary after the retention of `raw`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from streams.kafka.broker import Broker
from streams.kafka.client import KafkaClientSettings
from tests.support.api_world import ApiWorld, run_system
from tests.support.canaries import find_in_files, find_in_tables, find_in_topics
from tests.support.erasure import (
    CANARY,
    CANARY_TEXT,
    METADATA_CANARY,
    OTHER_TEXT,
    append_clear_alias,
    erase,
)
from tests.support.eventually import eventually
from tests.support.kafka_fixture import alter_topics, list_topics, require_kafka, run_broker
from tests.support.simulated_table import TOPIC, SimulatedTable

pytestmark = pytest.mark.kafka

CANARIES = (CANARY, METADATA_CANARY)
UNCOMPRESSED = {"compression.type": "uncompressed"}
SHORT_RETENTION = {"retention.ms": "1000", "segment.ms": "1000", "file.delete.delay.ms": "0"}


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[Broker]:
    """Run a broker whose files hold only this test's data."""
    require_kafka()
    with run_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    return kafka_broker.bootstrap_servers


@pytest.fixture
def settings(tmp_path: Path, kafka_settings: KafkaClientSettings) -> Settings:
    kafka = [
        f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}",
        f"kafka.topic_prefix={kafka_settings.topic_prefix}",
        "kafka.partitions=2",
    ]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *kafka])


def produce(
    kafka: KafkaClientSettings,
    topic: str,
    records: Iterable[tuple[bytes | None, Mapping[str, str], bytes]],
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, headers, value in records:
        producer.produce(kafka.topic_prefix + topic, value, key=key, headers=dict(headers))
    assert producer.flush(30) == 0


def make_record(
    number: int, payload: Mapping[str, Any] | bytes, **more: str
) -> tuple[bytes, dict[str, str], bytes]:
    headers = {
        "ce_specversion": "1.0",
        "ce_id": f"{METADATA_CANARY}/{number}",
        "ce_source": f"{METADATA_CANARY} press",
        "ce_type": "document.received.v1",
    }
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return (
        f"{METADATA_CANARY}-{number}".encode(),
        {**headers, "content-type": "application/json", **more},
        body,
    )


async def wait_until(true: Any, what: str) -> None:
    await eventually(lambda: asyncio.to_thread(true), what=what)


def find_in_segments(broker: Broker, kafka: KafkaClientSettings) -> set[str]:
    """Find broker files with a canary: topics by name, the broker's own files by path."""
    found = {
        Path(name).parts[0]
        for name in find_in_files(broker.data_dir, CANARIES)
        for name in (name.removeprefix("log/"),)
    }
    return {
        folder.removeprefix(kafka.topic_prefix).rpartition("-")[0] or folder for folder in found
    }


async def add_table_source(world: ApiWorld, kafka: KafkaClientSettings) -> None:
    table = SimulatedTable()
    table.insert(1, f"{CANARY} in a row.", f"{METADATA_CANARY} row")
    takes = {
        "kind": "debezium",
        "topic": kafka.topic_prefix + TOPIC,
        "mapping": {"body": ["body"], "title": "title"},
    }
    response = await world.http.post(
        "/v1/sources", json={"name": "notes", "connector": takes, "collection": "birds"}
    )
    assert response.status_code == 202, response.text
    produce(
        kafka,
        TOPIC,
        [
            (
                record.key,
                {name: value.decode() for name, value in record.headers.items()},
                record.value or b"",
            )
            for record in table.records
        ],
    )


async def test_broker_files_contain_no_erased_text(
    settings: Settings,
    kafka_settings: KafkaClientSettings,
    kafka_broker: Broker,
    database: str,
    overrides: Overrides,
) -> None:
    async with run_system(settings, database, overrides) as world:
        log = world.worker.storage.log
        await log.create_topics({TOPIC: 1}, retention_ms={})
        topics = await asyncio.to_thread(list_topics, kafka_settings) - {"chunked"}
        alter_topics(kafka_settings, dict.fromkeys(topics, UNCOMPRESSED))
        pool = world.worker.storage.pool
        erased = await world.ingest_until_searchable(
            CANARY_TEXT,
            f"{METADATA_CANARY}.md",
            external_id=f"{METADATA_CANARY}-1",
            title=f"A {METADATA_CANARY} title",
            collection="birds",
            tags=METADATA_CANARY,
        )
        stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
        produce(
            kafka_settings,
            "raw",
            [
                make_record(
                    2,
                    {
                        "external_id": f"{METADATA_CANARY}-2",
                        "content": {"text": CANARY_TEXT + " Again."},
                        "metadata": {METADATA_CANARY: CANARY},
                        "collection": "birds",
                    },
                    ce_correlationid=METADATA_CANARY,
                    ce_traceparent=METADATA_CANARY,
                ),
                make_record(
                    3,
                    {
                        "external_id": f"{METADATA_CANARY}-3",
                        "content": {"base64": CANARY + "%"},
                        "collection": "birds",
                    },
                ),
                make_record(
                    4,
                    {
                        "external_id": f"{METADATA_CANARY}-4",
                        "content": {"text": CANARY},
                        METADATA_CANARY: CANARY,
                    },
                ),
                make_record(5, f"{{{CANARY}".encode()),
            ],
        )
        await add_table_source(world, kafka_settings)
        answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
        await world.http.post(
            "/v1/feedback",
            json={
                "run_id": answer["run_id"],
                "useful": True,
                "corrected_answer": f"It was {CANARY}.",
                "note": METADATA_CANARY,
            },
        )
        await eventually(
            lambda: pool.fetchrow(
                "select (select count(*) from dead_letters), (select count(*) from visible)"
            ),
            lambda counts: counts[0] >= 3 and counts[1] >= 4,
        )
        clear = {"raw", "outcomes", TOPIC}
        assert await asyncio.to_thread(find_in_topics, kafka_settings, CANARIES) == clear, (
            "sealed from the start, whatever a producer wrote where"
        )
        assert await asyncio.to_thread(find_in_segments, kafka_broker, kafka_settings) == clear
        shown = await find_in_tables(pool, CANARIES)
        assert {
            "anabranch.dead_letters",
            "anabranch.source_changes",
            "anabranch.runs",
            "anabranch.feedback",
            "anabranch.engine_results",
        } <= shown

        first = await erase(world, "collection", "birds")
        assert (
            first["documents"] == 4
            and first["removed"]["source_changes"] == 1
            and first["removed"]["feedback"] == 1
        )
        assert first["remains"][-1].startswith("sources: 1 of these documents")
        assert await find_in_tables(pool, CANARIES) == {"anabranch.dead_letters"}, (
            "what never was a document is in no collection"
        )
        assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
            stays["document_id"]
        ]
        assert (await world.http.get(f"/v1/documents/{erased['document_id']}")).status_code == 404

        alter_topics(kafka_settings, dict.fromkeys(["raw", "outcomes"], SHORT_RETENTION))
        second = await erase(world, "tenant", "default")
        assert first["removed"]["dead_letters"] == 1 and second["removed"]["dead_letters"] == 2
        assert datetime.fromisoformat(second["raw_until"]) - datetime.fromisoformat(
            second["completed_at"]
        ) == timedelta(seconds=1 + 1 + 0 + 5)
        assert await find_in_tables(pool, CANARIES) == set()
        assert find_in_files(settings.data_dir, CANARIES) == set()
        await wait_until(
            lambda: (
                find_in_topics(kafka_settings, CANARIES)
                | find_in_segments(kafka_broker, kafka_settings)
                == {TOPIC}
            ),
            "the end of what topic raw keeps",
        )


async def test_receipt_counts_aliases_of_an_earlier_version(
    settings: Settings, kafka_settings: KafkaClientSettings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
        await append_clear_alias(world.worker.storage, "default", CANARY)
        pool = world.worker.storage.pool
        await eventually(lambda: find_in_tables(pool, CANARIES), what="the alias")
        receipt = await erase(world, "tenant", "default")
        assert "topic control: unsealed events about entities: 1" in receipt["remains"]
        assert await find_in_tables(pool, CANARIES) == set()
        assert "control" in await asyncio.to_thread(find_in_topics, kafka_settings, CANARIES)
